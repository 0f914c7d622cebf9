"""Invariants of a bucket, which hold after any failure of the processes that write it, and their checks.

:func:`check_bucket` reads a whole topic back, over any store, and compares it with Kafka. :func:`check_documents`
checks the control documents alone. Both compute the expected state independently of the code that wrote it.

- I1: every committed record that is not accepted as lost is in exactly one visible object, and nothing else is
- I2: a visible object is listed by a stored commit, and lies within its plan
- I3: an object's bytes are those in its manifest
- I4: the marker is the fold of its resolved batches, and all their objects are present, but those of values that were
  given to a table
- I5: a rerun of an intact run writes nothing: :func:`snapshot` before and after, :func:`check_unchanged`
- I6: after recovery no plan is open and no debt is left (``recovered=True``)
- I7: a deleted object stays gone (``deleted=...``)
- I8: no offset is omitted: below the highest landed offset of a partition, down to its start, every offset is landed,
  accepted as lost, owed, claimed or the target of a run; below its start (``times=...``) those of the window of every
  run
- I9: an index of the log has exactly what plans and manifests have, and of resolved batches only
- I10: with DeviantArt's names, a marker file names an index of a resolved batch; after recovery that of the object with
  the highest offset
- I11: a table that owns objects has resolved batches only
- I12: only objects of resolved batches are deleted on purpose, and what the log has as deleted is absent
"""

from __future__ import annotations

import base64
import collections
import itertools
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from airflow_provider_kafka_s3.arrays import binary_array
from airflow_provider_kafka_s3.batch.nesting import in_folder_of
from airflow_provider_kafka_s3.batch.object_metadata import BATCH_METADATA, CONTENT_METADATA, NONCE_METADATA
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import decode
from airflow_provider_kafka_s3.documents.manifest import ContentHash, ObjectEntry, SlicePart
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, Slice
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary
from airflow_provider_kafka_s3.exceptions import ControlError
from airflow_provider_kafka_s3.formats.block_offsets import ranges_of_runs
from airflow_provider_kafka_s3.formats.registry import null_finders
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.port import ObjectStore, StoredObject
from airflow_provider_kafka_s3.testing.decompress import decompress
from airflow_provider_kafka_s3.testing.topic_state import (
    TopicState,
    accounted_for,
    check_documents,
    check_summary,
    landed_ends,
)

__all__ = [
    "BucketSummary",
    "InvariantViolation",
    "RecordDecoder",
    "SourceRecords",
    "SourceTimes",
    "TopicState",
    "check_bucket",
    "check_documents",
    "check_unchanged",
    "decode_lines",
    "read_source",
    "read_state",
    "snapshot",
]

SourceTimes = Mapping[str, Mapping[int, Mapping[int, int]]]
"""Timestamps of the records in Kafka: topic id -> partition -> offset -> milliseconds since the epoch."""

SourceRecords = Mapping[str, Mapping[int, Mapping[int, bytes | None]]]
"""Present and former records in Kafka: topic id -> partition -> offset -> value."""

RecordDecoder = Callable[[str, bytes], Sequence[bytes | None]]
"""(key, stored bytes) -> the values in the object, in file order; None for a null value in an envelope."""

_SHOWN: Final = 20


class InvariantViolation(AssertionError):
    """The bucket violates invariants.

    Attributes:
        findings: one sentence per violation, each starting with the invariant's number.
    """

    def __init__(self, findings: Sequence[str]) -> None:
        shown = "\n  ".join(findings[:_SHOWN])
        more = f"\n  and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        super().__init__(f"{len(findings)} findings:\n  {shown}{more}")
        self.findings = tuple(findings)


@dataclass(frozen=True)
class BucketSummary:
    """Counts of a checked topic: its committed batches, their visible objects, the records and bytes in these."""

    batches: int
    objects: int
    records: int
    size: int


def read_state(store: ObjectStore, *, topics_dir: str, pipeline: str, topic: str) -> TopicState:
    """List and read all control documents of a topic.

    Raises:
        InvariantViolation: an object below the control prefix is not a valid control document.
    """
    prefix = addresses.control_prefix(topics_dir, pipeline, topic)
    state = TopicState(topic)
    findings = []
    for info in sorted(store.list(prefix), key=lambda info: info.key):
        stored = store.get(info.key)
        try:
            if stored is not None:
                state.add(info.key.removeprefix(prefix), stored.body)
        except (ControlError, ValueError) as e:
            findings.append(f"I4 control document {info.key}: {e}")
    if findings:
        raise InvariantViolation(findings)
    return state


def decode_lines(key: str, body: bytes, *, separator: bytes = b"\n") -> list[bytes]:
    """The values of a line-wise object: JSON lines, or bytes with a separator after each, and compression."""
    values = decompress(key, body).split(separator)
    if values.pop():
        raise ValueError(f"object {key} does not end with its separator: it was truncated")
    return values


def read_source(source: Source, topic: str, *, isolation: Isolation = "read_committed") -> SourceRecords:
    """All records that Kafka still has of a topic, in memory."""
    info = source.describe(topic)
    starts = source.earliest(topic, info.partitions)
    ends = source.ends(topic, info.partitions, isolation)
    records: dict[int, dict[int, bytes | None]] = {}
    for p in info.partitions:
        records[p] = {}
        for batch in source.read(topic, p, starts[p], ends[p], isolation):
            columns: dict[str, list[Any]] = batch.to_pydict()
            records[p].update(zip(columns["offset"], columns["value"], strict=True))
    return {info.topic_id or "": records}


def check_bucket(
    store: ObjectStore,
    *,
    topics_dir: str,
    pipeline: str,
    topic: str,
    source: SourceRecords | None = None,
    decoder: RecordDecoder = decode_lines,
    as_written: Callable[[bytes], bytes] = lambda value: value,
    is_optional: Callable[[str, int, int], bool] = lambda topic_id, partition, offset: False,
    deleted: Collection[str] = (),
    recovered: bool = False,
    complete: bool = False,
    times: SourceTimes | None = None,
) -> BucketSummary:
    """Read a topic's objects and control documents and check I1 to I4 and I7 to I12, and I6 on request.

    Args:
        store: the bucket; only read.
        topics_dir: of the pipeline.
        pipeline: its name.
        topic: name of the topic.
        source: records in Kafka; None: contents are only compared with the manifests.
        decoder: decodes an object's bytes to values.
        as_written: value in Kafka -> value in an object, where they differ.
        is_optional: (topic id, partition, offset) -> whether a complete read may lack it: it was compacted away.
        deleted: keys of deleted objects of commits, which have to stay gone.
        recovered: see :func:`check_documents`.
        complete: whether all of ``source`` from the marker's start on has to be covered.
        times: timestamps of the records in Kafka, without transaction markers; None: history below the start is not
            checked.

    Returns:
        The counts of the topic.

    Raises:
        InvariantViolation: with all findings.
    """
    state = read_state(store, topics_dir=topics_dir, pipeline=pipeline, topic=topic)
    findings = check_documents(state, recovered=recovered)
    address = addresses.TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)
    if (stored := store.get(addresses.summary_key(address))) is not None:
        findings += check_summary(state, decode(TopicSummary, stored.body, stored.key)[0])
    listed: dict[str, int] = {}
    folders = {f"{topics_dir}/{topic}/".removeprefix("/")}
    shared: dict[Layout, None] = {}
    batches = objects = size = read = 0
    for plan, manifest in state.committed():
        batches += 1
        if plan.layout is not None and keys.shares_folder(plan.layout):
            shared[plan.layout] = None
        elif plan.layout is not None:
            folders.add(keys.data_prefix(plan.layout, topic))
        for entry in manifest.objects:
            if entry.key in listed:
                findings.append(f"I1 object {entry.key} belongs to batches {listed[entry.key]} and {plan.batch}")
            listed[entry.key] = plan.batch
        contents = _BatchContents(plan)
        findings += contents.read(store, manifest.objects, state, decoder=decoder, deleted=deleted)
        objects, size, read = objects + contents.objects, size + contents.size, read + contents.records
        if source is not None and plan.topic_id in source:
            findings += contents.check_dead_letters(source[plan.topic_id])
            if state.is_resolved(plan.batch) or not contents.absent:
                findings += contents.check_records(source[plan.topic_id], as_written, is_optional)
    for folder in sorted(folders):
        present = [info.key for info in store.list(folder)]
        # Another pipeline's topics_dir may lie in the folder.
        control = f"/{keys.CONTROL_DIR}/"
        owners = {key for key in present if f"{control}_owners/" in key}
        documents = tuple(f"{key.partition(control)[0]}{control}" for key in owners)
        findings += [
            f"I2 object {key} is in no manifest"
            for key in present
            if key not in listed and not key.startswith(documents) and not in_folder_of(owners, key)
        ]
    if shared:
        findings += _check_shared_folders(store, state, [*shared], listed)
        findings += _check_chunk_markers(store, state, topics_dir, recovered=recovered)
    if complete:
        findings += _check_complete(state, source or {})
    findings += _check_windows(state, times or {})
    if findings:
        raise InvariantViolation(findings)
    return BucketSummary(batches=batches, objects=objects, records=read, size=size)


def _check_shared_folders(
    store: ObjectStore, state: TopicState, layouts: Sequence[Layout], listed: Collection[str]
) -> Iterable[str]:
    """Find objects of the topic in no manifest, in folders with those of other topics and of the sink before it."""
    parsers = [keys.data_key_parser(layout, state.topic) for layout in layouts]
    start = {} if state.marker is None else state.marker.start
    for info in store.list(keys.data_prefix(layouts[0], state.topic)):
        named = next((parsed for parse in parsers if (parsed := parse(info.key)) is not None), None)
        if named is None or info.key in listed:
            continue
        partition, offset, generation = named
        stored = store.get(info.key)
        if stored is None or BATCH_METADATA in stored.metadata or generation or offset >= start.get(partition, 0):
            yield f"I2 object {info.key} is in no manifest"


def _check_chunk_markers(store: ObjectStore, state: TopicState, topics_dir: str, *, recovered: bool) -> Iterable[str]:
    """Compare the marker files of DeviantArt's names with the indices of resolved batches."""
    of_partition: dict[int, set[str]] = collections.defaultdict(set)
    newest: dict[int, tuple[int, str]] = {}
    marker = state.marker
    for plan, manifest in state.committed():
        if plan.layout is None or not plan.layout.has_index or not keys.shares_folder(plan.layout):
            continue
        for entry in manifest.objects:
            if not entry.key.endswith(".index.json") or marker is None or not state.is_resolved(plan.batch):
                continue
            partition = plan.slices[entry.slices[0]].partition
            of_partition[partition].add(entry.key)
            lost = entry.key in state.amended.get(plan.batch, ())
            if plan.generation == marker.generation and entry.max_offset >= marker.start.get(partition, 0) and not lost:
                newest[partition] = max(newest.get(partition, (-1, "")), (entry.max_offset, entry.key))
    stored: dict[int, str] = {}
    for info in store.list(keys.chunk_markers_prefix(topics_dir, state.topic)):
        named = keys.chunk_marker_partition(topics_dir, state.topic, info.key)
        if named is not None and (marker_file := store.get(info.key)) is not None:
            stored[named] = marker_file.body.decode()
    for partition, content in stored.items():
        # Without an object of the pipeline, the file is that of the sink before it.
        if partition in newest and recovered and content != newest[partition][1]:
            yield f"I10 marker file of partition {partition} names {content}, not {newest[partition][1]}"
        taken_over = marker is not None and marker.start.get(partition, 0) > 0
        if content not in of_partition[partition] and not taken_over:
            yield f"I10 marker file of partition {partition} names {content}, which no resolved batch has"
    if recovered and (absent := sorted(newest.keys() - stored.keys())):
        yield f"I10 partitions {absent} have no marker file"


class _BatchContents:
    """What the objects of a batch hold."""

    def __init__(self, plan: Plan) -> None:
        self.objects = self.size = self.records = 0
        self.absent: list[ObjectEntry] = []
        self._plan = plan
        self._values: dict[int, list[tuple[_Part, Sequence[bytes | None]]]] = {s.id: [] for s in plan.slices}
        self._tombstones: dict[int, dict[str, _Part]] = {s.id: {} for s in plan.slices}
        self._dead: dict[int, dict[int, bytes | None]] = {s.id: {} for s in plan.slices}
        dead = None if plan.layout is None else keys.dead_letters_prefix(plan.layout, plan.topic)
        self._dead_prefix = dead or "\0"

    def read(
        self,
        store: ObjectStore,
        entries: Sequence[ObjectEntry],
        state: TopicState,
        *,
        decoder: RecordDecoder,
        deleted: Collection[str],
    ) -> Iterable[str]:
        """Read all objects; yields findings."""
        batch = self._plan.batch
        yield from self._check_siblings(entries)
        for entry in entries:
            stored = store.get(entry.key)
            if stored is None:
                self.absent.append(entry)
                accepted = state.amended.get(batch, frozenset()) | set(deleted)
                may_be_absent = (
                    entry.key in accepted
                    or state.may_be_deleted(batch, entry)
                    or (state.is_given(batch) and self._has_values(entry))
                )
                if state.is_resolved(batch) and not may_be_absent:
                    yield f"I4 object {entry.key} of resolved batch {batch} is absent"
                continue
            if state.is_deleted(batch, entry):
                yield f"I12 object {entry.key} of batch {batch} is recorded as deleted, and is there"
            if entry.key in deleted:
                yield f"I7 object {entry.key} of batch {batch} was deleted and came back"
            yield from _check_object(stored, self._plan, entry)
            try:
                count = self._add(entry, stored.body, decoder)
            except (ValueError, OSError, EOFError, KeyError) as e:
                yield f"I3 object {entry.key} cannot be decoded: {e}"
                continue
            if count != entry.records:
                yield f"I1 object {entry.key} has {count} records, its manifest has {entry.records}"
            if self._sibling(entry) == keys.INDEX:
                yield from self._check_index(store, entry, stored.body)
            self.objects, self.size = self.objects + 1, self.size + len(stored.body)
            self.records += 0 if self._is_sibling(entry) else count

    def _check_siblings(self, entries: Sequence[ObjectEntry]) -> Iterable[str]:
        """Compare the objects beside others with these; yields findings."""
        layout = self._plan.layout
        if layout is None or not keys.siblings(layout):
            return
        contents = {entry.key: entry.content for entry in entries}
        for entry in entries:
            if entry.key.startswith(self._dead_prefix):
                continue
            sibling = keys.sibling_of_key(layout, entry.key)
            ending = layout.format.object_extension if sibling is None else keys.siblings(layout)[sibling]
            values = entry.key.removesuffix(ending) + layout.format.object_extension
            beside = {name: keys.sibling_key(layout, values, name) for name in keys.siblings(layout)} | {None: values}
            folder = f"{layout.naming.directory_delim}{keys.TOMBSTONE_FOLDER}{layout.naming.directory_delim}"
            if values not in contents and folder in values:
                # The records have no values, and an index is one of values.
                beside = {name: key for name, key in beside.items() if name not in (None, keys.INDEX)}
                for part in _parts(entry):
                    self._tombstones.setdefault(part.range.id, {})[values] = part
            for key in beside.values():
                if contents.get(key) != entry.content:
                    yield f"I1 object {key} beside {entry.key} is missing, or does not have the same records"

    def _check_index(self, store: ObjectStore, entry: ObjectEntry, body: bytes) -> Iterable[str]:
        """Compare an index with its object and its manifest; yields findings."""
        layout = self._plan.layout
        assert layout is not None, "it is that of a commit"
        key = entry.key.removesuffix(keys.siblings(layout)[keys.INDEX]) + layout.format.object_extension
        stored, position, below = store.get(key), 0, entry.min_offset
        if stored is None:
            return  # its absence is a finding of its own, or was accepted
        chunks = json.loads(body)["chunks"]
        for chunk in chunks:
            block = stored.body[position : position + chunk["byte_length"]]
            first, end = chunk["first_record_offset"], chunk["next_record_offset"]
            ranges: Sequence[Sequence[int]] = chunk.get("offset_ranges", [[first, end]])
            if "offset_runs" in chunk:
                ranges = [*ranges_of_runs(chunk["offset_runs"], first)]
            fits = (
                chunk["byte_offset"] == position
                and len(zlib.decompress(block, 31)) == chunk["byte_length_uncompressed"]
                and below <= first == ranges[0][0] < ranges[-1][1] == end
                and all(a[1] < b[0] for a, b in itertools.pairwise(ranges))
                and 0 < chunk["num_records"] <= sum(b - a for a, b in ranges)
            )
            if not fits:
                yield f"I3 index {entry.key} does not fit the block of its object at byte {position}: {chunk}"
            position, below = position + chunk["byte_length"], end
        reached = position, chunks[0]["first_record_offset"], below
        if reached != (len(stored.body), entry.min_offset, entry.max_offset + 1):
            yield f"I3 index {entry.key} has other bytes or offsets than its object"

    def _sibling(self, entry: ObjectEntry) -> str | None:
        return None if self._plan.layout is None else keys.sibling_of_key(self._plan.layout, entry.key)

    def _is_sibling(self, entry: ObjectEntry) -> bool:
        return self._sibling(entry) is not None

    def _has_values(self, entry: ObjectEntry) -> bool:
        return not self._is_sibling(entry) and not entry.key.startswith(self._dead_prefix)

    def _add(self, entry: ObjectEntry, body: bytes, decoder: RecordDecoder) -> int:
        if self._sibling(entry) == keys.INDEX:
            return sum(chunk["num_records"] for chunk in json.loads(body)["chunks"])
        if self._is_sibling(entry):
            return len(decoder(entry.key, body))
        if not entry.key.startswith(self._dead_prefix):
            values = decoder(entry.key, body)
            row = 0
            for part in _parts(entry):
                # The last part gets what is left: a wrong number of records is a finding.
                end = None if part.is_last else row + part.range.records
                self._values.setdefault(part.range.id, []).append((part, values[row:end]))
                row += part.range.records
            return len(values)
        letters = [json.loads(line) for line in body.splitlines()]
        self._dead[entry.slices[0]] |= {
            letter["offset"]: None if letter["value"] is None else base64.b64decode(letter["value"])
            for letter in letters
        }
        return len(letters)

    def check_dead_letters(self, in_kafka: Mapping[int, Mapping[int, bytes | None]]) -> Iterable[str]:
        """Compare dead letters with Kafka; yields findings."""
        for s in self._plan.slices:
            records, letters = in_kafka.get(s.partition, {}), self._dead[s.id]
            if wrong := [o for o, value in letters.items() if o not in records or records[o] != value]:
                yield (
                    f"I1 batch {self._plan.batch}, partition {s.partition}: the dead letters {wrong[:10]} are not the "
                    f"records in Kafka"
                )

    def check_records(
        self,
        in_kafka: Mapping[int, Mapping[int, bytes | None]],
        as_written: Callable[[bytes], bytes],
        is_optional: Callable[[str, int, int], bool],
    ) -> Iterable[str]:
        """Compare the data objects with Kafka; yields findings."""
        layout = self._plan.layout
        writes_nulls = layout is not None and layout.format.on_null == "write"
        by_object: _Offsets = {}
        for s in self._plan.slices:
            offsets = [o for o in range(s.start, s.end) if o not in self._dead[s.id]]
            records = _with_nulls(layout, in_kafka.get(s.partition, {}))
            expected: dict[int, bytes | None] = {o: as_written(v) for o in offsets if (v := records.get(o)) is not None}
            nulls = [o for o in offsets if o in records and records[o] is None] if writes_nulls else []
            excused = {o for o in offsets if is_optional(self._plan.topic_id, s.partition, o)}
            if layout is not None and keys.siblings(layout):
                yield from _check_tombstones(
                    self._plan, s, nulls, excused, [*self._tombstones[s.id].values()], found=by_object
                )
            else:
                expected |= dict.fromkeys(nulls)
            for part in [part for entry in self.absent for part in entry.by_slice if part.id == s.id]:
                excused |= set(range(part.min_offset, part.max_offset + 1))
            yield from _check_slice(self._plan, s, expected, excused, self._values[s.id], found=by_object)
        yield from _check_offsets(self._plan, by_object)


@dataclass(frozen=True)
class _Part:
    """The records of one slice in an object."""

    entry: ObjectEntry
    range: SlicePart

    @property
    def is_last(self) -> bool:
        """Whether the object has no records behind them."""
        return self.range.id == self.entry.slices[-1]


def _with_nulls(layout: Layout | None, records: Mapping[int, bytes | None]) -> Mapping[int, bytes | None]:
    """Values of Kafka by offset, with null for those that the converter of the layout takes for null."""
    if layout is None or (nulls := null_finders(layout).get("value")) is None:
        return records
    mask = nulls(binary_array([value or b"" for value in records.values()], large=True))
    return {o: None if null else value for (o, value), null in zip(records.items(), mask.tolist(), strict=True)}


def _parts(entry: ObjectEntry) -> list[_Part]:
    return [_Part(entry, part) for part in entry.by_slice]


_Offsets = dict[str, tuple[ObjectEntry, dict[int, Sequence[int]]]]
"""By key an object, and by slice the offsets of its records, as far as its values show them."""


def _check_offsets(plan: Plan, found: _Offsets) -> Iterable[str]:
    """Compare the offsets of records with the manifest, of the objects whose offsets are known; yields findings."""
    for entry, by_slice in found.values():
        if by_slice.keys() != {*entry.slices}:
            continue
        digest: ContentHash | None = None
        ends = []
        for part in entry.by_slice:
            partition, offsets = plan.slices[part.id].partition, by_slice[part.id]
            if digest is None:
                digest = ContentHash(plan.topic_id, partition)
            else:
                digest.next_slice(partition)
            digest.update(offsets)
            ends += [[*offsets[:1], *offsets[-1:]] == [part.min_offset, part.max_offset]]
        if not all(ends) or digest is None or digest.hexdigest() != entry.content:
            yield f"I2 object {entry.key} does not have the offsets in its manifest"


def _check_object(stored: StoredObject, plan: Plan, entry: ObjectEntry) -> Iterable[str]:
    same_bytes = f"{zlib.crc32(stored.body):08x}" == entry.crc32.lower()
    # Another version of a library may compress the same records to other bytes when it writes an object again.
    written_again = stored.metadata.get(CONTENT_METADATA) == entry.content
    if len(stored.body) != entry.size or not (same_bytes or written_again):
        yield f"I3 object {entry.key} has other bytes than in its manifest"
    identified = {
        stored.metadata.get(NONCE_METADATA) == entry.nonce,
        stored.metadata.get(CONTENT_METADATA) == entry.content,
    }
    if stored.metadata.get(BATCH_METADATA) != str(plan.batch) or True not in identified:
        yield f"I2 object {entry.key} was not written by batch {plan.batch}: {dict(stored.metadata)}"


def _check_slice(
    plan: Plan,
    s: Slice,
    expected: Mapping[int, bytes | None],
    excused: Collection[int],
    objects: Sequence[tuple[_Part, Sequence[bytes | None]]],
    *,
    found: _Offsets,
) -> Iterable[str]:
    where = f"batch {plan.batch}, partition {s.partition}, offsets [{s.start}, {s.end})"
    left = collections.Counter(value for _, values in objects for value in values)
    missing = []
    for offset, value in expected.items():
        if left[value]:
            left[value] -= 1
        elif offset not in excused:
            missing.append(offset)
    if missing:
        yield f"I1 {where}: records {missing[:10]} are in no object ({len(missing)} in total)"
    extra = +left
    if extra:
        yield f"I1 {where}: {extra.total()} records are not in Kafka, or occur twice: {[*extra][:3]}"
    offset_of = {value: offset for offset, value in expected.items()}
    if extra or missing or len(offset_of) != len(expected):
        return  # equal values cannot be distinguished, so their offsets are unknown
    for part, values in objects:
        found.setdefault(part.entry.key, (part.entry, {}))[1][s.id] = [offset_of[value] for value in values]


def _check_tombstones(
    plan: Plan,
    s: Slice,
    nulls: Sequence[int],
    optional: Collection[int],
    objects: Sequence[_Part],
    *,
    found: _Offsets,
) -> Iterable[str]:
    """Compare the objects beside null values, one per group, with the offsets of null values in Kafka."""
    where = f"batch {plan.batch}, partition {s.partition}, offsets [{s.start}, {s.end})"
    required = [o for o in nulls if o not in optional]
    ranges = sorted((part.range for part in objects), key=lambda r: r.min_offset)
    if missing := [o for o in required if not any(r.min_offset <= o <= r.max_offset for r in ranges)]:
        yield f"I1 {where}: null values {missing[:10]} are in no object ({len(missing)} in total)"
        return
    count = sum(r.records for r in ranges)
    if not len(required) <= count <= len(nulls):
        yield f"I1 {where}: {count} records are in objects of null values, and Kafka has {len(required)}"
        return
    apart = all(a.max_offset < b.min_offset for a, b in itertools.pairwise(ranges))
    if not apart or len(required) < len(nulls):
        return  # which of them an object has is unknown
    for part in objects:
        offsets = [o for o in nulls if part.range.min_offset <= o <= part.range.max_offset]
        found.setdefault(part.entry.key, (part.entry, {}))[1][s.id] = offsets


def _check_complete(state: TopicState, source: SourceRecords) -> Iterable[str]:
    if state.marker is None:
        yield "I1 there is no marker, so nothing is covered"
        return
    start = state.marker.start
    in_kafka = source.get(state.marker.topic_id, {})
    expected = Offsets({p: [(o, o + 1) for o in records if o >= start.get(p, 0)] for p, records in in_kafka.items()})
    if not expected <= state.marker.covered:
        yield f"I1 offsets {expected - state.marker.covered} are in Kafka and were never landed"


def _check_windows(state: TopicState, times: SourceTimes) -> Iterable[str]:
    if state.marker is None:
        return
    in_kafka, ends = times.get(state.marker.topic_id, {}), landed_ends(state.marker)
    accounted = accounted_for(state, state.marker)
    for run in state.runs.values():
        if run.window is None or run.generation != state.marker.generation:
            continue
        # If retention has deleted records since, the end of the window may be unknown.
        begins = {p: ranges[0][0] for p, ranges in run.target.items()}
        whole = [p for p in ends.keys() & in_kafka.keys() if min(in_kafka[p], default=0) <= begins.get(p, 0)]
        expected = Offsets({p: [_range_of(run.window, in_kafka[p], ends[p])] for p in whole})
        if left_out := expected - accounted:
            yield f"I8 offsets {left_out} lie in the window {run.window} of run {run.run} and were never landed"


def _range_of(window: tuple[int, int], times: Mapping[int, int], end: int) -> tuple[int, int]:
    """From the first offset that is not older than the window to the first that is not older than its end."""
    bounds = [next((o for o, time in sorted(times.items()) if time >= bound), end) for bound in window]
    return bounds[0], min(bounds[1], end)


def snapshot(store: ObjectStore, prefix: str = "") -> dict[str, str]:
    """Key and ETag of everything below a prefix, pending uploads included."""
    etags = {info.key: info.etag for info in store.list(prefix)}
    etags.update({f"{u.key} (upload {u.upload_id})": "pending" for u in store.pending_uploads(prefix)})
    return etags


def check_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise InvariantViolation unless two snapshots are equal."""
    findings = [f"I5 {key} is new" for key in after if key not in before]
    findings += [f"I5 {key} is gone" for key in before if key not in after]
    findings += [f"I5 {key} was written again" for key in after if before.get(key, after[key]) != after[key]]
    if findings:
        raise InvariantViolation(findings)
