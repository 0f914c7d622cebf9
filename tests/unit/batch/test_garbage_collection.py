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


class Pipeline:
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
    pipeline = Pipeline()
    pipeline.fill(3)
    began: list[Request] = []

    def choose(request: Request) -> None:
        if request.operation == "pending_uploads" and not began:
            began.append(request)
            pipeline.die_after("manifest")

    found = pipeline.collect(FaultyStore(pipeline.bucket, choose=choose))
    assert began
    assert (len(found.needed), found.garbage) == (1, ())
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    assert Engine(pipeline.bucket, pipeline.kafka).run("died").status == "ok"
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True, complete=True)


def test_what_a_stopped_run_has_left_is_garbage_as_soon_as_its_offsets_are_landed() -> None:
    """Of any age, if asked for, since no batch can need it; until then by its age, and not while its batch is open."""
    pipeline = Pipeline()
    pipeline.fill(3)
    pipeline.die_after("plan")
    for offset in (3, 4, 5, 9):
        pipeline.upload(first_offset=offset, generation=0)

    def young() -> gc.Garbage:
        return gc.find_garbage(Engine(pipeline.bucket, pipeline.kafka).log, now=1.0, older_than=WEEK, landed=True)

    assert (len(young().garbage), len(young().young)) == (0, 4)
    assert (len(pipeline.collect().needed), len(pipeline.pending())) == (3, 3)
    pipeline.upload(first_offset=9, generation=0)
    assert Engine(pipeline.bucket, pipeline.kafka).run("died").status == "ok"
    found = young()
    assert (len(found.garbage), len(found.young)) == (3, 1)
    gc.collect(Engine(pipeline.bucket, pipeline.kafka).log, found)
    assert len(pipeline.pending()) == 1
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True)


def test_an_open_batch_keeps_the_uploads_of_its_own_generation_only() -> None:
    """After a reset the same offsets are those of another topic: uploads of the old one are garbage."""
    pipeline = Pipeline()
    pipeline.kafka.create_topic(TOPIC)
    pipeline.fill(3)
    assert reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    pipeline.die_after("plan")
    pipeline.upload(first_offset=0, generation=0)
    mine = pipeline.upload(first_offset=0, generation=1)
    found = pipeline.collect()
    assert ([u.upload_id for u in found.needed], len(found.garbage)) == ([mine], 1)
    assert pipeline.pending() == [mine]
    assert Engine(pipeline.bucket, pipeline.kafka).run("died").status == "ok"
    check_landed(pipeline.bucket, pipeline.kafka, recovered=True)
