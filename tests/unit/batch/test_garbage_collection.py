"""``gc`` keeps every upload that a batch may need, also a batch planned meanwhile, and nothing else."""

from __future__ import annotations

from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.maintenance import gc
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, Request, SimulatedCrash
from tests.protocol.engine import LAYOUT, TOPIC, Engine, check_landed

WEEK = 7 * 86_400.0


class World:
    """A topic with three landed records, in a bucket with a fixed clock."""

    def __init__(self) -> None:
        self.kafka = SimulatedKafka()
        self.bucket = MemoryStore(clock=lambda: 0.0)
        self.kafka.create_topic(TOPIC)
        self.fill(3)
        Engine(self.bucket, self.kafka).run("first")

    def fill(self, count: int) -> None:
        for _ in range(count):
            self.kafka.append(TOPIC, 0, b"%d" % self.kafka.bounds(TOPIC, 0)[1], timestamp=0)

    def die_after(self, document: str, run: str = "died") -> None:
        """A run that ends after it created a document."""
        store = FaultyStore(self.bucket)
        store.inject(Fault.CRASH_AFTER, operation="put_new", key=f"*.{document}.json")
        try:
            Engine(store, self.kafka).run(run)
        except SimulatedCrash:
            return
        raise AssertionError(f"run {run} wrote no {document}")

    def collect(self, store: FaultyStore | None = None) -> gc.Garbage:
        """A week later."""
        log = Engine(store or self.bucket, self.kafka).log
        found = gc.find_garbage(log, now=WEEK + 1, older_than=WEEK)
        gc.collect(log, found)
        return found

    def upload(self, first_offset: int, generation: int) -> str:
        """Begin an upload at the key of an object."""
        key = keys.data_key(
            LAYOUT,
            topic=TOPIC,
            encoded_partition="parity=0",
            partition=0,
            first_offset=first_offset,
            generation=generation,
        )
        return self.bucket.create_upload(key)

    def pending(self) -> list[str]:
        return [upload.upload_id for upload in self.bucket.pending_uploads("")]


def test_a_batch_that_is_planned_and_decided_during_gc_keeps_its_uploads() -> None:
    """At any age of its uploads: it is completed with them after Kafka has lost the records."""
    world = World()
    world.fill(3)
    began: list[Request] = []

    def choose(request: Request) -> None:
        if request.operation == "pending_uploads" and not began:
            began.append(request)
            world.die_after("manifest")

    found = world.collect(FaultyStore(world.bucket, choose=choose))
    assert began
    assert (len(found.needed), found.garbage) == (1, ())
    world.kafka.delete_records(TOPIC, 0, 6)
    assert Engine(world.bucket, world.kafka).run("died").status == "ok"
    check_landed(world.bucket, world.kafka, recovered=True, complete=True)


def test_an_open_batch_keeps_the_uploads_of_its_own_generation_only() -> None:
    """After a reset the same offsets are those of another topic: uploads of the old one are garbage."""
    world = World()
    world.kafka.create_topic(TOPIC)
    world.fill(3)
    assert reset(Engine(world.bucket, world.kafka).committer, operator="me")
    world.die_after("plan")
    world.upload(first_offset=0, generation=0)
    mine = world.upload(first_offset=0, generation=1)
    found = world.collect()
    assert ([u.upload_id for u in found.needed], len(found.garbage)) == ([mine], 1)
    assert world.pending() == [mine]
    assert Engine(world.bucket, world.kafka).run("died").status == "ok"
    check_landed(world.bucket, world.kafka, recovered=True)
