"""Abort uploads that cannot be completed any more, for buckets without a lifecycle rule that does so.

An upload is kept as long as a batch may need it: one listed in the decision of an open batch has to be completed, and
one at a key of an undecided batch may belong to a running driver. Where the offsets of a key are landed, no batch can:
each offset is landed by one batch, and of a resolved batch all listed uploads are complete. So what a stopped run has
left can be aborted as soon as another one has landed its offsets; uploads of other offsets have to be old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.log_index import parts
from airflow_provider_kafka_s3.batch.nesting import of_inner_topics
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.marker import Marker
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.parallel import Parallel, in_threads
from airflow_provider_kafka_s3.progress import progress
from airflow_provider_kafka_s3.storage.port import PendingUpload

__all__ = ["DEFAULT_AGE", "Garbage", "collect", "find_garbage"]

DEFAULT_AGE: Final = 7 * 86_400.0
"""Seconds; the same as recommended for the bucket's lifecycle rule."""

_LEAST_AGE: Final = 86_400.0

_PLANS_AT_ONCE: Final = 256

_ABORTED_AT_ONCE: Final = 1024
"""Uploads whose abortion is one step of the progress."""
_ABORTS: Final = 64
"""Requests at the same time: a stopped run of many folders may leave tens of thousands of uploads."""


@dataclass(frozen=True)
class Garbage:
    """Pending uploads below the data prefix of a topic.

    Attributes:
        garbage: old enough, and of no open batch; or of landed offsets, if asked for.
        needed: those that an open batch may need.
        young: younger than the given age, and not of landed offsets, if these are asked for; not examined further.
        foreign: those whose key is not one of this topic's objects, or is in the folder of a topic below it; never
            aborted.
    """

    garbage: tuple[PendingUpload, ...]
    needed: tuple[PendingUpload, ...]
    young: tuple[PendingUpload, ...]
    foreign: tuple[PendingUpload, ...]


def find_garbage(
    topic_log: TopicLog,
    *,
    now: float,
    older_than: float = DEFAULT_AGE,
    landed: bool = False,
    parallel: Parallel = in_threads,
) -> Garbage:
    """Classify a topic's pending uploads; nothing is changed.

    Args:
        topic_log: the control documents of the topic.
        now: epoch seconds. S3 refuses requests of machines whose clock is wrong by more than minutes.
        older_than: minimum age of an upload in seconds, by the store's clock.
        landed: also uploads of any age at keys whose offsets are landed. Of these only an object of several parts that
            is being written again from Kafka needs one; it is tried again.
        parallel: runs requests at once.

    Raises:
        ConfigurationError: ``older_than`` is less than a day.
        ControlError: the log cannot be trusted, so it is unknown which uploads are needed.
    """
    if older_than < _LEAST_AGE:
        raise ConfigurationError(
            f"uploads younger than a day may belong to a running job; {older_than / 86_400:.1f} days is too short"
        )
    if topic_log.read_marker() is None and topic_log.read_plan(1) is None:
        return Garbage((), (), (), ())
    layouts = _layouts(topic_log, parallel)
    # Listed before the open batches are read: a batch that is planned or decided in between is seen below.
    topic = topic_log.topic
    own = {keys.data_prefix(layout, topic) for layout in layouts if not keys.shares_folder(layout)}
    shared = {keys.data_prefix(layout, topic) for layout in layouts if keys.shares_folder(layout)}
    prefixes = sorted(own | shared)
    pending = {
        upload.upload_id: upload
        for prefix in prefixes
        for upload in topic_log.store.pending_uploads(prefix)
        # Others in a folder that topics share are those of the other topics.
        if upload.key.startswith(tuple(own)) or _named_by(layouts, topic, upload.key)
    }
    view = topic_log.view()
    done = _landed(view.marker, layouts, topic, pending) if landed else frozenset()
    young = {i for i, upload in pending.items() if now - upload.initiated < older_than and i not in done}
    old = {i: upload for i, upload in pending.items() if i not in young}
    named = {i: upload.key for i, upload in old.items() if _named_by(layouts, topic, upload.key)}
    # Another pipeline's topic of the same name, whose topics_dir is in this topic's folder, has keys of this form.
    inner = of_inner_topics(topic_log.store, prefixes, named.values())
    foreign = {i for i in old if i not in named or named[i] in inner}
    needed: set[str] = set()
    for batch, plan in sorted(view.open_plans.items()):
        needed |= _needed(plan, topic_log.read_manifest(batch), old)
    return Garbage(
        garbage=_sorted(u for i, u in old.items() if i not in needed | foreign),
        needed=_sorted(old[i] for i in needed),
        young=_sorted(pending[i] for i in young),
        foreign=_sorted(old[i] for i in foreign - needed),
    )


def collect(topic_log: TopicLog, garbage: Garbage) -> None:
    """Abort the garbage of :func:`find_garbage`; uploads that the store does not abort are logged."""
    uploads = [(upload.key, upload.upload_id) for upload in garbage.garbage]
    with progress(f"topic {topic_log.topic}: abort uploads", total=len(uploads), unit="upload") as advance:
        for start in range(0, len(uploads), _ABORTED_AT_ONCE):
            block = uploads[start : start + _ABORTED_AT_ONCE]
            topic_log.store.abort_uploads(block, threads=_ABORTS)
            advance(len(block))


def _layouts(topic_log: TopicLog, parallel: Parallel) -> list[Layout]:
    """All layouts of the topic's batches; of those that differ only in the time of the clock, one.

    The index has the batches whose layouts differ. If it were wrong, uploads would be overlooked, and none aborted that
    is needed: that depends on the open batches alone.
    """

    def layout(batch: int) -> Layout | None:
        plan, _ = topic_log.require_plan(batch)
        topic_log.forget(batch)
        return plan.layout

    layouts: dict[Layout | None, None] = {}
    view = topic_log.view()
    for numbers in [*_with_other_layouts(topic_log, view.marker, parallel), [*view.open_plans]]:
        # In blocks, so that a missing plan ends the loop, however high the last number in the marker is.
        for start in range(0, len(numbers), _PLANS_AT_ONCE):
            layouts |= dict.fromkeys(parallel(layout, numbers[start : start + _PLANS_AT_ONCE], threads=16))
    return [*{layout.at(0): layout for layout in layouts if layout is not None}.values()]


def _with_other_layouts(topic_log: TopicLog, marker: Marker, parallel: Parallel) -> Iterator[Sequence[int]]:
    """Resolved batches, which together have all layouts."""
    for part in parts(topic_log, marker, parallel=parallel):
        if part.batches is None:
            yield part.numbers
        else:
            yield sorted({batch.same_layout_as for batch in part.batches if batch.same_layout_as is not None})


def _named_by(layouts: Sequence[Layout], topic: str, key: str) -> bool:
    return any(keys.parse_data_key(layout, topic, key) is not None for layout in layouts)


def _landed(
    marker: Marker, layouts: Sequence[Layout], topic: str, uploads: Mapping[str, PendingUpload]
) -> frozenset[str]:
    """Ids of the uploads at keys whose offsets are landed."""
    parsers = [keys.data_key_parser(layout, topic) for layout in layouts]
    covered = [marker.covered_in(generation) for generation in range(marker.generation + 1)]

    def is_landed(key: str) -> bool:
        places = [place for parse in parsers if (place := parse(key)) is not None]
        return bool(places) and all(
            generation < len(covered) and covered[generation] & Offsets({partition: [(offset, offset + 1)]})
            for partition, offset, generation in places
        )

    return frozenset(i for i, upload in uploads.items() if is_landed(upload.key))


def _needed(plan: Plan, decision: Manifest | None, uploads: dict[str, PendingUpload]) -> set[str]:
    """Ids of the uploads that an open batch may need."""
    if decision is not None:
        return {entry.upload_id for entry in decision.objects} & uploads.keys()
    if plan.layout is None:
        return set()
    needed = set()
    for upload_id, upload in uploads.items():
        parsed = keys.parse_data_key(plan.layout, plan.topic, upload.key)
        if parsed is not None and parsed[2] == plan.generation:
            partition, offset, _ = parsed
            if plan.claim & Offsets({partition: [(offset, offset + 1)]}):
                needed.add(upload_id)
    return needed


def _sorted(uploads: Iterable[PendingUpload]) -> tuple[PendingUpload, ...]:
    return tuple(sorted(uploads, key=lambda u: (u.key, u.upload_id)))
