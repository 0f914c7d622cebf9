"""Finds batches of many small objects: those that ended since other objects had to be opened."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from airflow_provider_kafka_s3.config import KIB, Layout, Parquet
from airflow_provider_kafka_s3.config.layout import OPEN_ROW_GROUPS
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.layout.keys import dead_letters_prefix, encoded_partition_parser, sibling_of_key
from airflow_provider_kafka_s3.messages import count

__all__ = ["early_ends"]

_FAR_MORE: Final = 4
"""Objects for each encoded partition that are not worth a warning."""

_SMALLEST_ROW_GROUP: Final = 64 * KIB
"""Bytes of the smallest row groups that are recommended."""

_MOST_COMPRESSED: Final = 30
"""An object whose bytes are fewer than ``max_bytes`` by this factor did not end because of ``max_bytes``."""


def early_ends(plan: Plan, manifest: Manifest) -> str | None:
    """The warning of a batch in whose slices objects ended at nearly every record; None: there is nothing to warn of.

    All objects that are open between two rotations by ``flush_size`` are open at the same time, unless one of them ends
    early. So a slice in which more objects begin than may be open has objects that ended early. Those are harmless if
    the folders follow each other, and many if records of the same folders, or schemas, follow in turn.

    Args:
        plan: of the batch.
        manifest: its decision.
    """
    layout = plan.layout
    if layout is None or manifest.status != "commit":
        return None
    if layout.schema_compatibility is not None or layout.rotation.rotate_interval_ms is not None:
        return None  # schemas that change, and times, end objects as often as it was asked for
    flush, most = layout.rotation.flush_size, layout.max_open_objects
    by_slice, folder_of = _objects_of_values(plan, layout, manifest), encoded_partition_parser(layout, plan.topic)
    slices = records = objects = needed = 0
    folders: set[str] = set()
    for group in plan.grouped:
        # All objects of slices that share objects are open in one task.
        entries = [entry for s in group for entry in by_slice.get(s.id, ())]
        rotations = 1 if flush is None else 1 + sum(manifest.slices[s.id].records for s in group) // flush
        if len(entries) <= rotations * most:
            continue
        inside = {folder_of(entry.key) for entry in entries}
        if len(entries) > _FAR_MORE * rotations * len(inside):
            slices += len(group)
            objects += len(entries)
            records += sum(entry.records for entry in entries)
            needed = max(needed, len(inside))
            folders |= inside
    if not slices:
        return None
    return (
        f"topic {plan.topic}: batch {plan.batch}: {count(slices, 'slice')} of {len(manifest.slices):,} made "
        f"{count(objects, 'object')} of {count(records, 'record')} in {count(len(folders), 'encoded partition')}: a "
        f"slice has at most {count(most, 'object')} open, and a record that needs one more ends another. All records "
        f"are landed, but many small objects are slow to read. To have fewer and larger ones in the next batches, "
        f"{_remedy(layout, needed)}"
    )


def _objects_of_values(plan: Plan, layout: Layout, manifest: Manifest) -> dict[int, list[ObjectEntry]]:
    """By their first slice, the objects of values that did not end because of ``max_bytes``."""
    dead = dead_letters_prefix(layout, plan.topic)
    objects: dict[int, list[ObjectEntry]] = defaultdict(list)
    for entry in manifest.objects:
        of_values = not entry.key.startswith(dead) and sibling_of_key(layout, entry.key) is None
        if of_values and entry.size * _MOST_COMPRESSED < layout.rotation.max_bytes:
            objects[entry.slices[0]].append(entry)
    return objects


def _remedy(layout: Layout, folders: int) -> str:
    """What lets more objects of a slice be open, of which some have so many folders, and what needs fewer."""
    most, settings = layout.max_open_objects, []
    enough = max(folders, 2 * most)  # with fewer folders than open objects, there are several schemas in one
    row_group = OPEN_ROW_GROUPS // enough
    if isinstance(layout.format, Parquet) and layout.format.row_group_bytes > row_group:
        settings.append(f"row_group_bytes of Parquet to {row_group} or less")
    if layout.rotation.max_open_objects < enough:
        settings.append(f"max_open_objects to {enough:,} or more, if the worker has the memory")
    other = "use a partitioner with wider folders" if folders > most else "use one topic for each schema"
    if isinstance(layout.format, Parquet) and row_group < _SMALLEST_ROW_GROUP:
        return other
    return f"set {' and '.join(settings)}; or {other}"
