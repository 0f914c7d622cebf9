"""The environment of the simulated processes: events in Kafka and in the bucket, and actions of people."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Literal

from msgspec import structs

from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.storage.port import StoredObject
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from tests.protocol.engine import TOPIC
from tests.protocol.process import INDEX_SIZES, Process
from tests.protocol.programs import abandon, accept_losses, collect_garbage, read_summaries, repair_log, reset
from tests.protocol.watch import record

if TYPE_CHECKING:
    from tests.protocol.simulation import World

__all__ = ["Environment"]

_FUTURE: Final = 36_000_000
"""Milliseconds: ten hours, more than the tolerated clock skew."""

_CLAIM: Final = ("claim", "skipped", "generation")

_RELEASES: Final[tuple[Literal["debt", "lost"], ...]] = ("debt", "debt", "lost")


class Environment:
    """Random events, determined by the seed.

    Attributes:
        clock: time of the records, in milliseconds.
        recreated: how often the topic was created again.
        replaced: topic id, partition and offset of the records that a leader has lost.
    """

    def __init__(self, world: World, rng: random.Random, kafka: SimulatedKafka) -> None:
        self.world = world
        self.rng = rng
        self.kafka = kafka
        self.clock = 0
        self.recreated = 0
        self.replaced: set[tuple[str, int, int]] = set()
        # Some topics have records from the future, some a partition that is idle most of the time.
        self._future_records = rng.choice((0.0, 0.0, 0.0, 0.02))
        self._idle = rng.random() < 0.3

    def now(self) -> float:
        """Current time, in seconds."""
        return self.clock / 1000

    def due(self, window: tuple[int, int]) -> Offsets:
        """The readable offsets that a run over a window has to land, computed from every record."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        times = self.kafka.all_times()[self.kafka.topic_id(TOPIC)]
        for partition, end in self.kafka.readable_ends(TOPIC).items():
            past = [(o, t) for o, t in sorted(times[partition].items()) if t < self.clock + _FUTURE // 2]
            first, stop = (next((o for o, t in past if t >= at), end) for at in window)
            ranges[partition] = [(first, min(stop, end))]
        return Offsets(ranges)

    def step(self) -> None:
        """Let each event occur with its probability."""
        chance = self.rng.random
        if chance() < 0.10:
            self.append_records()
        if chance() < 0.012:
            partition = self._random_partition()
            start, end = self.kafka.bounds(TOPIC, partition)
            if start < end:
                self.kafka.compact(TOPIC, partition, self.rng.randrange(start, end))
        if chance() < 0.003:
            partition = self._random_partition()
            start, _ = self.kafka.bounds(TOPIC, partition)
            self.kafka.delete_records(TOPIC, partition, start + self.rng.choice((1, 2, 6)))
        if chance() < 0.001:
            self.kafka.add_partitions(TOPIC, 1)
        if self.world.lossy and chance() < 0.01:
            self._elect()
        if chance() < 0.01:
            self._open_or_commit_transaction()
        if chance() < 0.0006 and self.recreated == 0:
            self._recreate_topic()
        if chance() < 0.02 and self.world.bucket.uploads:
            self.world.bucket.expire_upload(self.rng.choice(sorted(self.world.bucket.uploads)))
        if chance() < 0.004 and self.world.bucket.uploads:
            self.world.bucket.doomed.add(self.rng.choice(sorted(self.world.bucket.uploads)))
        if chance() < 0.01 and self.world.bucket.uploads:
            upload_id = self.rng.choice(sorted(self.world.bucket.uploads))
            self.world.bucket.refusing[upload_id] = self.rng.choice((1, 1, 3, 1_000))
            self.world.counts["uploads refused"] += 1
        if chance() < 0.05:
            self.world.apply_late_request()
        if self.world.watch.state.marker is not None:
            self.act_as_people()

    def act_as_people(self) -> None:
        """Let people and their commands do what they may at any time."""
        chance, state = self.rng.random, self.world.watch.state
        assert state.marker is not None
        if chance() < 0.007:
            unresolved = [n for n, p in state.plans.items() if p.type == "data" and not state.is_resolved(n)]
            if unresolved:
                batch, release = self.rng.choice(unresolved), self.rng.choice(_RELEASES)
                self.world.spawn("operator", lambda p: abandon(self.world, p, batch, release))
        if chance() < 0.01 and state.marker.topic_id != self.world.live_topic_id:
            self.world.spawn("operator", reset)
        if chance() < 0.002:
            self.world.spawn("operator", lambda p: accept_losses(self.world, p))
        if chance() < 0.006:
            self._delete_object()
        if self.world.trim and chance() < 0.05:
            self._trim_log()

        if self.world.indexed and chance() < 0.03:
            self._change_index()
        if self.world.indexed and chance() < 0.01:
            self.world.spawn("reader", lambda p: read_summaries(self.world, p))
        if self.world.indexed and chance() < 0.005:
            every_document = self.rng.random() < 0.5
            self.world.spawn("operator", lambda p: repair_log(self.world, p, every_document=every_document))
        if self.world.indexed and chance() < 0.003:
            self.world.spawn("operator", lambda p: collect_garbage(self.world, p))

    def _change_index(self) -> None:
        """Delete, damage or forge an index, which nobody should."""
        objects, control = self.world.bucket.objects, self.world.address.prefix
        indexes = [key for key in sorted(objects) if key.startswith(addresses.indexes_prefix(control))]
        if not indexes:
            return
        key, how = self.rng.choice(indexes), self.rng.choice(("deleted", "damaged", "damaged", "forged"))
        first, last = map(int, key.removeprefix(addresses.indexes_prefix(control)).removesuffix(".json").split("-"))
        large = INDEX_SIZES[-1]
        around = (first - 1) // large * large + 1
        made_from_it = addresses.index_key(control, around, large) not in objects
        is_large = last - first + 1 == large
        if (how == "forged" and made_from_it) or (how == "deleted" and is_large and self.world.forged):
            # A large index is made from small ones, whose checksums are trusted.
            return
        stored = objects.pop(key)
        if how == "damaged":
            body = stored.body.replace(b'"decided_by":"', b'"decided_by":"not ', 1)
            objects[key] = StoredObject(key, body, f"{stored.etag}-damaged", {})
        elif how == "forged":
            index = self.world.watch.state.indexes[first, last]
            claims = [(b.claim, b.skipped, b.generation) for b in index.batches if b.type == "data"]
            self.rng.shuffle(claims)
            forged = [
                b if b.type != "data" else structs.replace(b, **dict(zip(_CLAIM, claims.pop(), strict=True)))
                for b in index.batches
            ]
            body = encode(structs.replace(index, batches=tuple(forged)), {})
            objects[key] = StoredObject(key, body, f"{stored.etag}-forged", {})
            self.world.forged = True
        self.world.counts[f"indexes {how}"] += 1

    def append_records(self) -> None:
        self.clock += 1
        partition = self._random_partition()
        if self._idle and partition == 0 and self.rng.random() < 0.9:
            return
        for _ in range(self.rng.choice((1, 2, 5))):
            if self.rng.random() < 0.08:
                self.kafka.append_marker(TOPIC, partition)
                continue
            offset = self.kafka.bounds(TOPIC, partition)[1]
            timestamp = max(0, self.clock + self.rng.choice((0, 0, 0, -3, 1)))
            if self.rng.random() < self._future_records:
                timestamp += _FUTURE
                self.world.counts["records of the future"] += 1
            self._append(partition, offset, timestamp)

    def _append(self, partition: int, offset: int, timestamp: int) -> None:
        topic_id = self.kafka.topic_id(TOPIC)
        value = record(topic_id, partition, offset)
        if self.world.lossy:
            # Where a leader has lost a record, there is another one of the same size.
            value += b"~%03d" % self.kafka.log_epoch(TOPIC, partition)
        self.kafka.append(TOPIC, partition, value, timestamp)

    def _elect(self) -> None:
        """Elect another leader, which may have lost records, and some of which have more by the next step."""
        partition = self._random_partition()
        start, end = self.kafka.bounds(TOPIC, partition)
        lost = self.rng.choice((0, 0, 3, 10, 30))
        stop = max(start, end - lost)
        self.replaced |= {(self.kafka.topic_id(TOPIC), partition, offset) for offset in range(stop, end)}
        self.kafka.elect(TOPIC, partition, end=stop)
        self.world.counts["elections"] += 1
        self.world.counts["records lost by leaders"] += end - stop
        if self.rng.random() < 0.5:
            self.grow(partition, end + 2)

    def grow(self, partition: int, end: int) -> None:
        """Append records up to an offset."""
        for offset in range(self.kafka.bounds(TOPIC, partition)[1], end):
            self._append(partition, offset, self.clock)

    def grow_past_lost_records(self) -> None:
        """Append records to each partition, until it has more than any leader had."""
        for _, partition, offset in sorted(self.replaced):
            if partition < self.kafka.partition_count(TOPIC):
                self.grow(partition, offset + 2)

    def _open_or_commit_transaction(self) -> None:
        partition = self._random_partition()
        if self.kafka.in_transaction(TOPIC, partition):
            self.kafka.commit_transaction(TOPIC, partition)
        else:
            self.kafka.open_transaction(TOPIC, partition)
            self.world.counts["transactions"] += 1

    def end_transactions(self) -> None:
        """Commit all open transactions, so that every record can be read."""
        for partition in range(self.kafka.partition_count(TOPIC)):
            if self.kafka.in_transaction(TOPIC, partition):
                self.kafka.commit_transaction(TOPIC, partition)

    def _recreate_topic(self) -> None:
        self.recreated += 1
        lengths = [self.kafka.bounds(TOPIC, p)[1] for p in range(self.kafka.partition_count(TOPIC))]
        self.kafka.create_topic(TOPIC, len(lengths))
        for partition, length in enumerate(lengths):
            for offset in range(self.rng.choice((0, length))):
                self._append(partition, offset, self.clock)
        self.world.counts["topic recreated"] += 1

    def _delete_object(self) -> None:
        # A process stopped between its last read of the marker and its write may bring such an object back: a known
        # limit (commit protocol, known limits 2), which is excluded only here.
        excused = {key for a in self.world.scheduler.actors if isinstance(a, Process) for key in a.writing_again}
        excused |= {key for p in self.world.senders for key in p.late_keys[: len(p.late)] if key is not None}
        candidates = [
            key
            for key in sorted(self.world.bucket.objects)
            if (batch := self.world.watch.batch_of(key)) is not None
            and self.world.watch.state.is_resolved(batch)
            and key not in excused
        ]
        if candidates:
            self.world.watch.on_delete(self.world.bucket.objects.pop(self.rng.choice(candidates)), self.world.now)
            self.world.counts["objects deleted by users"] += 1

    def _trim_log(self) -> None:
        control = self.world.address.prefix
        for batch in sorted(self.world.watch.state.plans):
            if self.world.watch.state.is_resolved(batch):
                for key in (addresses.plan_key(control, batch), addresses.manifest_key(control, batch)):
                    if self.world.bucket.objects.pop(key, None) is not None:
                        self.world.watch.on_trim(key)

    def _random_partition(self) -> int:
        return self.rng.randrange(self.kafka.partition_count(TOPIC))
