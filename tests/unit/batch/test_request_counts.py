"""The number of requests of a batch, which does not grow with the number of batches before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from airflow_provider_kafka_s3.batch.request import TargetOffsets, TopicResult
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents import marker as marker_module
from airflow_provider_kafka_s3.documents.codec import encode
from airflow_provider_kafka_s3.documents.manifest import SliceResult, SliceRows
from airflow_provider_kafka_s3.documents.marker import PartitionState
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan, first_slices
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import WRITES, Fault, FaultyStore
from tests.protocol.engine import ADDRESS, CONTROL, PIPELINE, SUMMARY, TOPIC, TOPICS_DIR, Engine
from tests.protocol.history import batch_of, documents_of, marker_of, summary_of

T = TypeVar("T")
R = TypeVar("R")

PART = 5 * 1024 * 1024
BATCHES = 400


class Pipeline:
    """A bucket that counts, and a topic."""

    def __init__(self, records: int = 0) -> None:
        self.kafka = SimulatedKafka()
        self.topic_id = self.kafka.create_topic(TOPIC)
        self.fill(records)
        self.bucket = MemoryStore()

    def fill(self, records: int) -> None:
        for _ in range(records):
            self.kafka.append(TOPIC, 0, b"x")

    def past(self, batches: int, *, every: int = 1) -> None:
        """Marker and summary of landed batches of two records each, without their documents."""
        marker = marker_of(batches, topic=TOPIC, topic_id=self.topic_id, every=every)
        self.bucket.put_new(addresses.marker_key(CONTROL), encode(marker, {}))
        self.bucket.put_new(SUMMARY, encode(summary_of(ADDRESS, marker, []), {}))

    def whole_past(self, batches: int, *, indexed: bool = False) -> None:
        """The same, with every document and object."""
        where = {"prefix": CONTROL, "topics_dir": TOPICS_DIR, "pipeline": PIPELINE}
        found = documents_of(batches, topic=TOPIC, topic_id=self.topic_id, indexed=indexed, **where)
        for key, body, metadata in found:
            self.bucket.put_new(key, body, metadata=metadata)

    def engine(self) -> tuple[Engine, FaultyStore]:
        """A new process, and its requests."""
        store = FaultyStore(self.bucket)
        return Engine(store, self.kafka), store


def count(*stores: FaultyStore) -> dict[str, int]:
    """Requests by operation."""
    return dict(Counter(request.operation for store in stores for request in store.requests))


def upload(engine: Engine, plan: Plan, objects: int, parts: int) -> SliceRows:
    """Act as a Spark task: one object per record, each with this number of parts."""
    (s,) = plan.slices
    _, decision, bodies = batch_of(
        plan.batch, plan.claim, topic=TOPIC, topic_id=plan.topic_id, layout=plan.layout, objects=objects
    )
    entries = []
    for entry, (key, body, metadata) in zip(decision.objects, bodies, strict=True):
        upload_id = engine.store.create_upload(key, metadata)
        full = [engine.store.upload_part(key, upload_id, n, bytes(PART)) for n in range(1, parts)]
        done = [*full, engine.store.upload_part(key, upload_id, parts, body)]
        entries.append(
            type(entry)(
                **{f: getattr(entry, f) for f in entry.__struct_fields__}
                | {
                    "upload_id": upload_id,
                    "parts": tuple((part.etag, part.checksum) for part in done),
                    "size": len(body) + PART * (parts - 1),
                }
            )
        )
    result = SliceResult(id=s.id, records=s.end - s.start, ignored=0, next_offset=s.end)
    return SliceRows(result=result, objects=tuple(entries))


def land(
    pipeline: Pipeline,
    run: str,
    offsets: TargetOffsets = "incremental",
    *,
    objects: int,
    parts: int = 1,
    **settings: Any,
) -> tuple[TopicResult, FaultyStore, FaultyStore]:
    """A run of one batch; the requests of the operator and of the driver."""
    operator, operator_requests = pipeline.engine()
    attempt = operator.topic_run(operator.request(run, offsets, limits={"records_per_slice": 10**6}, **settings))
    plan = attempt.advance()
    assert isinstance(plan, Plan)
    driver, driver_requests = pipeline.engine()
    plan, _ = driver.log.require_plan(plan.batch)
    assert driver.log.read_manifest(plan.batch) is None
    decision = driver.committer.decide(plan, [upload(driver, plan, objects, parts)], run=run)
    driver.committer.carry_out(plan, decision)
    result = attempt.advance()
    assert isinstance(result, TopicResult)
    return result, operator_requests, driver_requests


@pytest.mark.parametrize(("objects", "parts"), [(1, 1), (7, 1), (3, 2), (2_000, 1)])
def test_a_batch_of_n_objects_in_p_parts_costs_the_documented_requests(objects: int, parts: int) -> None:
    """Operator: run, marker, plan, marker, manifest, summary; driver: plan, manifest, marker twice; N of each else."""
    pipeline = Pipeline(objects)
    pipeline.past(0)
    result, operator, driver = land(pipeline, "first", objects=objects, parts=parts)
    assert (result.status, result.batches[0].objects) == ("ok", objects)
    # Before the job 5 GETs; after it the marker, the next plan, this plan, its manifest, and the summary.
    assert count(operator) == {"get": 5 + 5, "put_new": 2, "put_if_match": 1}
    assert count(driver) == {
        "get": 2 + 2,
        "put_new": 1,
        "put_if_match": 1,
        "create_upload": objects,
        "upload_part": objects * parts,
        "complete_upload": objects,
        "head": objects,
    }


def test_a_rerun_of_n_objects_costs_n_heads_and_six_gets() -> None:
    """Run, marker, next plan, this plan, its manifest, the summary; and nothing is written."""
    pipeline = Pipeline(50)
    pipeline.past(0)
    land(pipeline, "first", objects=50)
    engine, store = pipeline.engine()
    assert engine.run("first").verified == 50
    assert count(store) == {"get": 6, "head": 50}


def test_a_run_that_finds_nothing_new_costs_four_gets() -> None:
    """Its record, the marker, the next plan, the summary; after any number of batches."""
    pipeline = Pipeline(20_000)
    pipeline.past(10_000)
    engine, store = pipeline.engine()
    assert engine.run("nothing").status == "empty"
    assert count(store) == {"get": 4}


def test_a_lost_swap_of_the_marker_costs_one_get_and_one_put_more() -> None:
    """After a swap with an unknown outcome the marker is read, and swapped again if necessary."""
    pipeline = Pipeline(1)
    pipeline.past(0)
    engine, _ = pipeline.engine()
    attempt = engine.topic_run(engine.request("first"))
    plan = attempt.advance()
    assert isinstance(plan, Plan)
    driver, store = pipeline.engine()
    decision = driver.committer.decide(plan, [upload(driver, plan, 1, 1)], run="first")
    store.inject(Fault.CONFLICT, operation="put_if_match")
    before = count(store)
    driver.committer.carry_out(plan, decision)
    spent = Counter(count(store))
    spent.subtract(before)
    assert +spent == {"get": 2 + 1, "put_if_match": 1 + 1, "complete_upload": 1, "head": 1}


@pytest.mark.parametrize("batches", [10, 10_000])
def test_what_a_run_costs_does_not_grow_with_the_number_of_batches_before(batches: int) -> None:
    """The marker is as long after 10,000 batches as after ten, and a run sends as many requests."""
    pipeline = Pipeline(2 * batches + 3)
    pipeline.past(batches)
    marker = pipeline.bucket.get(addresses.marker_key(CONTROL))
    assert marker is not None
    assert len(marker.body) < 400
    result, operator, driver = land(pipeline, "next", objects=3)
    assert result.batches[0].batch == batches + 1
    assert (count(operator)["get"], count(driver)["get"]) == (11, 4)


def test_an_open_batch_costs_later_runs_only_the_read_of_its_own_plan() -> None:
    """Every run reads a backfill that stays open, but not the batches landed since."""
    pipeline = Pipeline(2 * BATCHES)
    pipeline.whole_past(BATCHES)
    marker = marker_of(BATCHES, topic=TOPIC, topic_id=pipeline.topic_id)
    left = Offsets({0: [(0, 2), (4, 2 * BATCHES)]})
    opened = replace(marker, resolved=((1, 2), (3, BATCHES + 1)), partitions={0: PartitionState(covered=left[0])})
    pipeline.bucket.delete(addresses.marker_key(CONTROL))
    pipeline.bucket.delete(addresses.manifest_key(CONTROL, 2))
    pipeline.bucket.put_new(addresses.marker_key(CONTROL), encode(opened, {}))
    pipeline.bucket.delete(SUMMARY)
    pipeline.bucket.put_new(SUMMARY, encode(summary_of(ADDRESS, opened, []), {}))
    pipeline.fill(3)
    window = {0: (2 * BATCHES, 2 * BATCHES + 3)}
    result, operator, driver = land(pipeline, "next", objects=3, offsets="data_interval", window=window)
    assert [b.batch for b in result.batches] == [BATCHES + 1]
    # The run reads the open plan once, and keeps it.
    assert (count(operator)["get"], count(driver)["get"]) == (11 + 1, 4)
    again, store = pipeline.engine()
    assert again.run("next", "data_interval", window=window).verified == 3
    assert count(store) == {"get": 6 + 1, "head": 3}


def test_a_marker_grows_with_the_gaps_in_its_coverage_only() -> None:
    """Ten thousand windows with a gap after each: some 20 bytes for each, and the same requests."""
    pipeline = Pipeline(3)
    pipeline.past(10_000, every=2)
    marker = pipeline.bucket.get(addresses.marker_key(CONTROL))
    assert marker is not None
    assert 100_000 < len(marker.body) < 250_000
    pipeline.kafka.ends = lambda *_: {0: 40_003}  # type: ignore[method-assign]
    engine, store = pipeline.engine()
    attempt = engine.topic_run(engine.request("next", limits={"records_per_slice": 10**6}))
    assert isinstance(attempt.advance(), Plan)
    assert count(store) == {"get": 6, "put_new": 2}


def test_planning_and_the_marker_are_the_same_after_a_million_batches() -> None:
    """One range of resolved numbers and one of offsets; the same requests as after ten batches."""
    sizes = []
    for batches in (10, 1_000_000):
        pipeline = Pipeline(3)
        pipeline.past(batches)
        marker = pipeline.bucket.get(addresses.marker_key(CONTROL))
        assert marker is not None
        sizes.append(len(marker.body))
        pipeline.kafka.ends = lambda *_, end=2 * batches + 3: {0: end}  # type: ignore[misc]
        engine, store = pipeline.engine()
        assert isinstance(engine.topic_run(engine.request("next")).advance(), Plan)
        assert count(store) == {"get": 6, "put_new": 2}
    assert sizes[1] < sizes[0] + 30


def test_a_run_and_a_status_make_the_sets_of_a_marker_once_for_any_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each set has all partitions: one for each of them would take time that grows with the square of their number."""
    made, make = list[str](), marker_module._offsets

    def noting(partitions: dict[int, PartitionState], name: str) -> Offsets:
        made.append(name)
        return make(partitions, name)

    monkeypatch.setattr(marker_module, "_offsets", noting)
    counts = []
    for partitions in (2, 40):
        kafka = SimulatedKafka()
        kafka.create_topic(TOPIC, partitions)
        for partition in range(partitions):
            kafka.append(TOPIC, partition, b"x")
        engine = Engine(FaultyStore(MemoryStore()), kafka)
        assert engine.run("first").batches[0].objects == partitions
        made.clear()
        assert engine.run("nothing").status == "empty"
        assert topic_status(engine.log, kafka) is not None
        counts.append(len(made))
    assert counts[0] == counts[1]


class Rounds:
    """``in_threads`` in one thread, with the number of calls and of their items."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, function: Callable[[T], R], items: Sequence[T], *, threads: int = 64) -> list[R]:
        self.sizes += [min(threads, len(items))] * math.ceil(len(items) / threads)
        return [function(item) for item in items]


@pytest.fixture(scope="module")
def history() -> Pipeline:
    """Many batches with every document, and two new records."""
    pipeline = Pipeline(2 * BATCHES)
    pipeline.whole_past(BATCHES)
    return pipeline


@pytest.fixture(scope="module")
def indexed_history() -> Pipeline:
    """The same, with the indexes of the log."""
    pipeline = Pipeline(2 * BATCHES)
    pipeline.whole_past(BATCHES, indexed=True)
    return pipeline


def copy_of(history: Pipeline) -> Pipeline:
    """Another bucket with the same batches."""
    pipeline = Pipeline()
    pipeline.kafka, pipeline.topic_id, pipeline.bucket = history.kafka, history.topic_id, history.bucket.copy()
    return pipeline


def over(pipeline: Pipeline, window: tuple[int, int], **settings: Any) -> tuple[TopicResult, FaultyStore, Rounds]:
    """A new run over offsets that are landed."""
    engine, store = pipeline.engine()
    engine.committer.parallel = engine.committer.objects.parallel = rounds = Rounds()
    return engine.run("again", "data_interval", window={0: window}, **settings), store, rounds


def test_a_new_run_over_the_oldest_window_reads_the_log_concurrently(history: Pipeline) -> None:
    """All plans have to be read, a few dozen at a time; of the manifests only that of the window."""
    result, store, rounds = over(copy_of(history), (0, 2))
    assert [b.batch for b in result.batches] == [1]
    assert count(store) == {"get": 1 + 1 + 1 + BATCHES + 1 + 1, "head": 1, "list": 1}
    assert len(rounds.sizes) < BATCHES / 20


def test_a_new_run_over_the_latest_window_reads_one_plan(history: Pipeline) -> None:
    """With any number of earlier batches."""
    result, store, _ = over(copy_of(history), (2 * BATCHES - 2, 2 * BATCHES))
    assert [b.batch for b in result.batches] == [BATCHES]
    assert count(store) == {"get": 6, "head": 1}


def test_a_verification_of_everything_reads_each_document_once_and_concurrently(history: Pipeline) -> None:
    """Plan, manifest and object of each batch, and nothing twice."""
    pipeline = copy_of(history)
    result, store, rounds = over(pipeline, (0, 2 * BATCHES), action="verify")
    assert result.verified == BATCHES
    reads = Counter(request.key for request in store.requests if request.operation == "get")
    # And the marker, the record of the run, and that of what was deleted on purpose.
    assert len(reads) == 3 * BATCHES + 3
    assert max(reads.values()) == 1
    assert not {request.operation for request in store.requests} & WRITES
    assert len(rounds.sizes) < BATCHES


def test_a_run_over_everything_checks_the_objects_of_many_batches_together(history: Pipeline) -> None:
    """One HEAD for each, hundreds at a time, and the result has every batch in order."""
    result, store, rounds = over(copy_of(history), (0, 2 * BATCHES))
    assert [b.batch for b in result.batches] == list(range(1, BATCHES + 1))
    assert count(store)["head"] == BATCHES
    assert len(rounds.sizes) < BATCHES / 4


def test_status_reads_the_latest_batches_only(history: Pipeline) -> None:
    """Marker, the plan of the next batch, and two documents for each batch that is shown."""
    engine, store = copy_of(history).engine()
    status = topic_status(engine.log, history.kafka, last=5)
    assert status is not None
    assert status.batches == BATCHES
    # Of the topic's tables there is a listing, and of what was deleted on purpose a document.
    assert count(store) == {"get": 1 + 1 + 2 * 5 + 1, "list": 1}


def test_a_repair_reads_the_log_once_and_concurrently(indexed_history: Pipeline) -> None:
    """With --every-document nothing but documents is read; without a marker each object is checked, once."""
    for gone, heads in ((False, 0), (True, BATCHES)):
        pipeline = copy_of(indexed_history)
        if gone:
            pipeline.bucket.delete(addresses.marker_key(CONTROL))
        engine, store = pipeline.engine()
        engine.committer.parallel = engine.committer.objects.parallel = rounds = Rounds()
        with pytest.MonkeyPatch.context() as patch:
            # Those of the index are counted elsewhere.
            patch.setattr("airflow_provider_kafka_s3.maintenance.repair.repair_derived", lambda *_, **__: {})
            done = repair(engine.committer, start={0: 0}, every_document=True)
        assert done.marker.covered == Offsets({0: [(0, 2 * BATCHES)]})
        assert done.written is gone
        counts = count(store)
        assert counts["list"] == 1
        assert counts.get("head", 0) == heads
        # Owner and marker, plans, manifests.
        assert 2 * BATCHES + 2 <= counts["get"] <= 2 * BATCHES + 3
        assert len(rounds.sizes) < BATCHES / 2


def test_a_window_with_many_gaps_becomes_batches_that_spark_can_plan() -> None:
    """At most 200 slices of a partition in one batch; the run continues with the next until all is landed."""
    pipeline = Pipeline(2 * 205)
    engine, _ = pipeline.engine()
    result = engine.run("small slices", limits={"records_per_slice": 2})
    assert [b.offsets.count for b in result.batches] == [400, 10]
    read = first_slices(Offsets({0: [(0, 2**62)], 1: [(5, 6), (8, 9), (20, 40)]}), max_records=10, most=3)
    assert read == Offsets({0: [(0, 30)], 1: [(5, 6), (8, 9), (20, 30)]})


def test_memory_of_offsets_does_not_depend_on_their_count() -> None:
    """A batch may claim more offsets than there is memory for; their partitions are few."""
    claim = Offsets({0: [(0, 2**63 - 1)], 1: [(0, 2**63 - 1)]})
    assert tuple(claim) == (0, 1)
    assert claim.count == 2**64 - 2
    many = Offsets({0: [(2 * n, 2 * n + 1) for n in range(10_000)]})
    assert len(str(many)) < 1_000
    assert str(many).endswith("and 9,950 more ranges")
