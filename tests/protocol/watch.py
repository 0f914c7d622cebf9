"""The invariants, checked inside the bucket at every write: no later repair can hide a violation."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from airflow_provider_kafka_s3.documents.addresses import TopicAddress, summary_key
from airflow_provider_kafka_s3.documents.codec import decode
from airflow_provider_kafka_s3.documents.expiry import ExpiredObjects, Expiry, WaitingExpiry
from airflow_provider_kafka_s3.documents.manifest import Manifest, ObjectEntry
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.documents.topic_summary import TopicSummary
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.invariants import InvariantViolation
from airflow_provider_kafka_s3.testing.topic_state import TopicState, check_documents, check_summary
from tests.protocol.engine import ADDRESS, KEY, LAYOUT, TOPIC, TOPICS_DIR

__all__ = ["Watch", "place_of", "record"]


def record(topic_id: str, partition: int, offset: int) -> bytes:
    """The value of a record, which identifies it."""
    return f"{topic_id}/{partition}/{offset}".encode()


def place_of(value: bytes) -> bytes:
    """The :func:`record` of a value, which may have been appended where a leader has lost another."""
    return value.partition(b"~")[0]


def values_of(stored: StoredObject) -> list[bytes]:
    """The values in an object; those in an index are none."""
    if stored.key.endswith(".index.json"):
        return []
    body = gzip.decompress(stored.body) if stored.key.endswith(".gz") else stored.body
    return body.splitlines()


class Watch:
    """Checks every write to the bucket.

    Attributes:
        state: the control documents as they were first written.
        deleted: keys of objects that a user deleted and that did not come back.
        ever_deleted: keys of all objects that a user deleted, each with the step of the last time.
        expired: keys of objects that a process deleted on purpose.
        landed: all values that ever were visible.
        values_of_deleted: the values in each object that was deleted, by a user or on purpose.
    """

    def __init__(self, is_optional: Callable[[str, int, int], bool], address: TopicAddress = ADDRESS) -> None:
        self.address = address
        self.state = TopicState(TOPIC)
        self.deleted: set[str] = set()
        self.ever_deleted: dict[str, int] = {}
        self.expired: set[str] = set()
        self.landed: set[bytes] = set()
        self.values_of_deleted: dict[str, Sequence[bytes]] = {}
        self._is_optional = is_optional
        self._visible: Counter[bytes] = Counter()
        self._listed: dict[str, int] = {}
        self._trimmed: set[str] = set()

    def fail(self, finding: str) -> None:
        raise InvariantViolation([finding])

    def on_write(self, key: str, before: StoredObject | None, after: StoredObject, *, restoring: bool) -> None:
        """Check one write.

        Args:
            key: the written key.
            before: the object before.
            after: the object after.
            restoring: whether the writer may write deleted objects again.
        """
        control, topics_dir = self.address.prefix, self.address.topics_dir
        if key.startswith(control):
            self._on_control(key.removeprefix(control), before, after)
        elif key == summary_key(self.address):
            self._on_summary(before, after)
        elif keys.chunk_marker_partition(topics_dir, TOPIC, key) is not None:
            self._on_chunk_marker(key, before, after)
        elif key.startswith((f"{topics_dir}/{TOPIC}/", f"{topics_dir}/20", f"{topics_dir}/generation-")):
            self._on_data(key, before, after, restoring)

    def on_delete(self, stored: StoredObject, step: int) -> None:
        """Record that a user deleted an object of a resolved batch."""
        self.deleted.add(stored.key)
        self.ever_deleted[stored.key] = step
        self._on_gone(stored)

    def on_expire(self, stored: StoredObject) -> tuple[WaitingExpiry, ...]:
        """Check that an object that a process deletes on purpose may be; the records that have it."""
        batch, expiry = self._listed.get(stored.key), self.state.expiry
        if batch is None or not self.state.is_resolved(batch):
            self.fail(f"I12 object {stored.key}, which no resolved batch has, was deleted")
        assert batch is not None
        entry = self.entry_of(batch, stored.key)
        waiting = () if expiry is None else expiry.waiting
        records = tuple(one for one in waiting if one.has_begun and one.objects.has(batch, entry))
        if not records and not self.state.is_deleted(batch, entry):
            self.fail(f"I12 object {stored.key} of batch {batch} was deleted, and no record says so")
        self.expired.add(stored.key)
        self._on_gone(stored)
        return records

    def _on_gone(self, stored: StoredObject) -> None:
        self.values_of_deleted[stored.key] = [place_of(value) for value in values_of(stored)]
        self._visible.subtract(self.values_of_deleted[stored.key])

    def has(self, value: bytes) -> bool:
        """Whether a value is visible."""
        return self._visible[value] > 0

    def on_abort(self, key: str, upload_id: str) -> None:
        """Check that a process does not abort a pending upload that a decided batch still needs."""
        batch = self._listed.get(key)
        if batch is None or self.state.is_resolved(batch) or self.exists(key):
            return
        accepted = self.state.amended.get(batch, frozenset())
        if key not in accepted and any(o.upload_id == upload_id for o in self.state.manifests[batch].objects):
            self.fail(f"I1 upload {upload_id}, the only copy of object {key} of decided batch {batch}, was aborted")

    def on_trim(self, key: str) -> None:
        """Record that somebody deleted an old control document, which is forbidden."""
        self._trimmed.add(key.removeprefix(self.address.prefix))

    def batch_of(self, key: str) -> int | None:
        """The committed batch that lists a key."""
        return self._listed.get(key)

    def entry_of(self, batch: int, key: str) -> ObjectEntry:
        """The object of a committed batch at a key."""
        return next(entry for entry in self.state.manifests[batch].objects if entry.key == key)

    # -- control documents --------------------------------------------------------------------------------------------

    def _on_control(self, name: str, before: StoredObject | None, after: StoredObject) -> None:
        old_marker = self.state.marker
        # A damaged index may be replaced; whoever does it has to write what the documents have.
        if before is not None and name not in ("marker.json", "expiry.json") and not name.startswith("index/"):
            self.fail(f"I3 control document {name} was overwritten")
        if name in self._trimmed:
            return  # the first version counts
        old_expiry = self.state.expiry
        self.state.add(name, after.body)
        if name == "expiry.json" and old_expiry is not None:
            self._check_growth(old_expiry)
        if findings := check_documents(self.state):
            raise InvariantViolation(findings)
        if name.endswith(".manifest.json"):
            decision = self.state.manifests[int(name.removeprefix("batches/")[:10])]
            for entry in decision.objects:
                if self._listed.setdefault(entry.key, decision.batch) != decision.batch:
                    self.fail(f"I1 object {entry.key} belongs to batches {self._listed[entry.key]}, {decision.batch}")
        elif name == "marker.json" and old_marker is not None:
            marker = self.state.marker
            assert marker is not None
            old_batches, batches = {*old_marker.resolved_downward()}, {*marker.resolved_downward()}
            # A repair may complete several batches at once.
            if (
                marker.revision - old_marker.revision not in {1, len(batches - old_batches) or 1}
                or old_batches - batches
            ):
                self.fail(f"I4 the marker went from revision {old_marker.revision} back to {marker.revision}")
            for plan, decision in self.state.committed():
                if marker.is_resolved(plan.batch) and not old_marker.is_resolved(plan.batch):
                    self.check_batch(plan, decision, self.exists)
                    self._check_uploads(plan, decision)

    def _check_growth(self, old: Expiry) -> None:
        """Check that nothing whose deletion has begun is taken back: others may have deleted it meanwhile."""
        new = self.state.expiry
        assert new is not None
        begun = old.deleted
        for waiting in old.waiting:
            begun |= waiting.objects if waiting.has_begun else ExpiredObjects()
        if left := begun.without(new.objects):
            self.fail(f"I12 the deletion of {left} had begun, and was taken back")

    def _on_summary(self, before: StoredObject | None, after: StoredObject) -> None:
        summary, _ = decode(TopicSummary, after.body, after.key)
        if findings := [*check_summary(self.state, summary)]:
            raise InvariantViolation(findings)
        if before is not None:
            old, _ = decode(TopicSummary, before.body, before.key)
            is_amended = summary.marker == old.marker and summary.amended != old.amended
            if summary.marker.revision <= old.marker.revision and not is_amended:
                self.fail(f"I9 the summary went from revision {old.marker.revision} to {summary.marker.revision}")

    def _check_uploads(self, plan: Plan, decision: Manifest) -> None:
        """Check that no upload of a resolved batch is pending: a late Complete could bring a deleted object back."""
        for entry in decision.objects:
            if self.is_pending(entry.upload_id):
                self.fail(f"I7 upload {entry.upload_id} of {entry.key} is pending, and batch {plan.batch} is resolved")

    exists: Callable[[str], bool]
    """Whether a key is visible; set by the owner of the bucket."""

    is_pending: Callable[[str], bool]
    """Whether an upload is pending; set by the owner of the bucket."""

    def check_batch(self, plan: Plan, decision: Manifest, exists: Callable[[str], bool]) -> None:
        """Check that all objects of a resolved batch exist and hold all its records."""
        absent = [entry for entry in decision.objects if not exists(entry.key)]
        excused = self.state.amended.get(plan.batch, frozenset()) | self.deleted | self.expired
        for entry in absent:
            if entry.key not in excused:
                self.fail(f"I4 the marker is ahead: object {entry.key} of resolved batch {plan.batch} is absent")
        layout = plan.layout or LAYOUT
        self._check_records(plan, [e for e in absent if keys.sibling_of_key(layout, e.key) is None], b"")
        if keys.siblings(layout) and not layout.has_index:
            self._check_records(plan, [e for e in absent if keys.sibling_of_key(layout, e.key) is not None], KEY)

    def _check_records(self, plan: Plan, absent: Sequence[ObjectEntry], prefix: bytes) -> None:
        """Check that all values, or keys, of a batch are visible but those of absent objects."""
        partitions = {s.id: s.partition for s in plan.slices}
        gone = Offsets()
        for entry in absent:
            for part in entry.by_slice:
                gone |= Offsets({partitions[part.id]: [(part.min_offset, part.max_offset + 1)]})
        for partition, ranges in (plan.read - gone).items():
            for start, end in ranges:
                for offset in range(start, end):
                    visible = self._visible[prefix + record(plan.topic_id, partition, offset)]
                    if not visible and not self._is_optional(plan.topic_id, partition, offset):
                        what = "offset" if not prefix else "key of offset"
                        self.fail(f"I1 lost: {what} {offset} of partition {partition}, batch {plan.batch}")

    # -- marker files -------------------------------------------------------------------------------------------------

    def _on_chunk_marker(self, key: str, before: StoredObject | None, after: StoredObject) -> None:
        old, new = (None if one is None else self._end_of_index(key, one.body.decode()) for one in (before, after))
        assert new is not None
        if old is not None and new <= old:
            self.fail(f"I10 marker file {key} went from {before and before.body!r} back to {after.body!r}")

    def _end_of_index(self, key: str, index: str) -> tuple[int, int]:
        """Generation and last offset of the object that a marker file names."""
        batch = self._listed.get(index)
        if batch is None or not self.state.is_resolved(batch):
            self.fail(f"I10 marker file {key} names {index}, which no resolved batch has")
        assert batch is not None
        entry = self.entry_of(batch, index)
        return self.state.plans[batch].generation, entry.max_offset

    def check_chunk_markers(self, objects: Mapping[str, StoredObject]) -> int:
        """Check that each partition has a file that names the object with its last offset; returns their number."""
        marker, newest = self.state.marker, dict[int, tuple[int, str]]()
        assert marker is not None
        for plan, decision in self.state.committed():
            for entry in decision.objects:
                partition = plan.slices[entry.slices[0]].partition
                if (
                    plan.generation == marker.generation
                    and self.state.is_resolved(plan.batch)
                    and entry.key.endswith(".index.json")
                    and entry.key not in self.state.amended.get(plan.batch, ())
                    and entry.max_offset >= marker.start.get(partition, 0)
                ):
                    newest[partition] = max(newest.get(partition, (-1, "")), (entry.max_offset, entry.key))
        for partition, (_, index) in newest.items():
            stored = objects.get(keys.chunk_marker_key(TOPICS_DIR, TOPIC, partition))
            if stored is None or stored.body.decode() != index:
                self.fail(f"I10 after the repair the marker file of partition {partition} does not name {index}")
        return len(newest)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _on_data(self, key: str, before: StoredObject | None, after: StoredObject, restoring: bool) -> None:
        if before is not None:
            if before.body != after.body:
                self.fail(f"I3 the bytes of object {key} changed")
            return
        batch = self._listed.get(key)
        if batch is None:
            self.fail(f"I2 stray: object {key} became visible and no commit lists it")
            return
        plan = self.state.plans[batch]
        entry = self.entry_of(batch, key)
        if f"{zlib.crc32(after.body):08x}" != entry.crc32:
            self.fail(f"I3 object {key} of batch {batch} does not have the records in its manifest")
        claim = plan.read
        for written in values_of(after):
            self.landed.add(written)
            value = place_of(written)
            topic_id, partition, offset = value.removeprefix(KEY).decode().split("/")
            offsets = Offsets({int(partition): [(int(offset), int(offset) + 1)]})
            if topic_id != plan.topic_id or not offsets <= claim:
                self.fail(f"I2 object {key} of batch {batch} holds record {value.decode()}, which is not in its plan")
            self._visible[value] += 1
            if self._visible[value] > 1:
                self.fail(f"I1 duplicate: record {value.decode()} is in two visible objects, one is {key}")
        if key in self.expired:
            self.fail(f"I7 object {key} of batch {batch} was deleted on purpose and came back")
        if key in self.deleted:
            if not restoring:
                self.fail(f"I7 object {key} of batch {batch} was deleted by a user and came back")
            self.deleted.discard(key)
