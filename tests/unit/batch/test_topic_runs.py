"""A run over one topic: its target is pinned once, and success means that all of it is covered."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.config import ByField, JsonLines, Layout, Naming
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import (
    ConfigurationError,
    DataLossError,
    LogTamperedError,
    MissingObjectError,
    RunSupersededError,
    TopicNotFoundError,
    TopicRecreatedError,
    TransientError,
)
from airflow_provider_kafka_s3.inspect.lag import lag
from airflow_provider_kafka_s3.inspect.status import topic_status
from airflow_provider_kafka_s3.maintenance.abandon import abandon
from airflow_provider_kafka_s3.maintenance.repair import repair
from airflow_provider_kafka_s3.maintenance.reset import reset
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.protocol.engine import CONTROL, LAYOUT, TOPIC, TOPICS_DIR, Clock, Engine, check_landed, crash_after


class Pipeline:
    """A bucket, a cluster, and processes."""

    def __init__(self, partitions: int = 1, *, topic_ids: bool = True) -> None:
        self.kafka = SimulatedKafka(records_per_poll=2, topic_ids=topic_ids)
        self.kafka.create_topic(TOPIC, partitions)
        self.bucket = MemoryStore()
        self.deleted: set[str] = set()

    def records(self, count: int, partition: int = 0, timestamp: int = 0) -> None:
        for _ in range(count):
            offset = self.kafka.bounds(TOPIC, partition)[1]
            self.kafka.append(TOPIC, partition, b"%d/%d" % (partition, offset), timestamp)

    def run(self, run: str, offsets: Any = "incremental", **settings: Any) -> TopicResult:
        return Engine(self.bucket, self.kafka).run(run, offsets, **settings)

    def dies_after_planning(self, run: str, offsets: Any = "incremental", **settings: Any) -> None:
        self.dies_after("*.plan.json", run, offsets, **settings)

    def dies_after(self, document: str, run: str, offsets: Any = "incremental", **settings: Any) -> None:
        crash_after(document, self.bucket, self.kafka, run, offsets, **settings)

    def a_user_deletes(self, result: TopicResult) -> list[str]:
        """All objects of a run's batches."""
        log = Engine(self.bucket, self.kafka).log
        gone = []
        for batch in result.batches:
            decision = log.read_manifest(batch.batch)
            assert decision is not None
            gone += [entry.key for entry in decision.objects]
        for key in gone:
            self.bucket.delete(key)
        self.deleted.update(gone)
        return gone

    def check(self, *, complete: bool = True, recovered: bool = True) -> None:
        check_landed(
            self.bucket,
            self.kafka,
            is_optional=self.kafka.is_optional,
            deleted=self.deleted,
            recovered=recovered,
            complete=complete,
        )


def offsets(*ranges: tuple[int, int], partition: int = 0) -> Offsets:
    """Ranges of one partition."""
    return Offsets({partition: ranges})


# -- where a pipeline starts ------------------------------------------------------------------------------------------


def test_a_first_run_from_latest_finds_nothing_and_the_second_reads_exactly_the_new_records() -> None:
    """The start is pinned by the first run, although it finds nothing."""
    pipeline = Pipeline()
    pipeline.records(5)
    assert pipeline.run("first", starting="latest").status == "empty"
    pipeline.records(4)
    result = pipeline.run("second", starting="latest")
    assert (result.status, result.target) == ("ok", offsets((5, 9)))
    pipeline.check()


def test_a_first_run_from_earliest_begins_at_the_log_start() -> None:
    """Not at 0: records that retention deleted before the first run are no loss."""
    pipeline = Pipeline()
    pipeline.records(9)
    pipeline.kafka.delete_records(TOPIC, 0, 4)
    assert pipeline.run("first").target == offsets((4, 9))


def test_explicit_starts_are_taken_for_every_partition() -> None:
    """One offset each; nothing is guessed."""
    pipeline = Pipeline(2)
    pipeline.records(5, 0)
    pipeline.records(5, 1)
    for wrong, why in (
        ({0: 1}, r"name partitions \[0\], the topic has \[0, 1\]"),
        ({0: 1, 1: 6}, "offset 6 of partition 1 is not within"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            pipeline.run("first", starting=wrong)
    assert list(pipeline.bucket.list("")) == []
    assert pipeline.run("first", starting={0: 1, 1: 5}).target == offsets((1, 5))


def test_partitions_that_are_added_later_are_read_from_their_beginning() -> None:
    """Also after a start from latest."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.run("first", starting="latest")
    pipeline.kafka.add_partitions(TOPIC, 1)
    pipeline.records(2, 1)
    assert pipeline.run("second", starting="latest").target == offsets((0, 2), partition=1)
    pipeline.check()


def test_runs_over_an_empty_topic_write_only_the_marker() -> None:
    """No run record, no plan; the marker only."""
    pipeline = Pipeline(3)
    for run, wrote in (("first", True), ("second", False)):
        result = pipeline.run(run)
        assert (result.status, result.batches, result.wrote) == ("empty", (), wrote)
    assert [i.key for i in pipeline.bucket.list(CONTROL)] == [addresses.marker_key(CONTROL)]


def test_a_topic_that_does_not_exist_is_named() -> None:
    """Before anything is written."""
    pipeline = Pipeline()
    pipeline.kafka.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError, match=f"'{TOPIC}'"):
        pipeline.run("first")
    assert list(pipeline.bucket.list("")) == []


def test_brokers_without_topic_ids_are_served_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An older broker has none; the run logs the consequence."""
    kafka = SimulatedKafka(topic_ids=False)
    kafka.create_topic(TOPIC)
    kafka.append(TOPIC, 0, b"x", 0)
    with caplog.at_level(logging.WARNING):
        assert Engine(MemoryStore(), kafka).run("first").status == "ok"
    assert "return no topic ids" in caplog.text


def test_topic_ids_that_brokers_begin_to_report_are_recorded_and_land_nothing_again() -> None:
    """The topic is the same: the next batch records its id, and a topic that is created again is detected."""
    pipeline = Pipeline(topic_ids=False)
    pipeline.records(3)
    pipeline.dies_after("*.manifest.json", "first")
    pipeline.kafka.upgrade()
    assert pipeline.run("first").status == "ok"
    pipeline.records(2)
    engine = Engine(pipeline.bucket, pipeline.kafka)
    assert lag(engine.log, pipeline.kafka, "read_committed") == 2
    status = topic_status(engine.log, pipeline.kafka)
    assert status is not None
    assert not status.recreated
    with pytest.raises(ConfigurationError, match="it is unknown whether topic 'events' is the landed one"):
        reset(engine.committer, operator="")
    pipeline.dies_after("*.plan.json", "second")
    # An open plan has the id before the marker has it.
    assert not reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="")
    assert pipeline.run("second").target == offsets((3, 5))
    log = Engine(pipeline.bucket, pipeline.kafka).log
    live = pipeline.kafka.topic_id(TOPIC)
    assert [log.require_plan(n)[0].topic_id for n in (1, 2)] == ["", live]
    assert log.require_marker()[0].topic_id == live
    assert not reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="")
    assert pipeline.run("first", action="verify").status == "ok"
    assert repair(Engine(pipeline.bucket, pipeline.kafka).committer, start={}).was == "right"
    pipeline.check()
    pipeline.kafka.create_topic(TOPIC)
    with pytest.raises(TopicRecreatedError):
        pipeline.run("third")


def test_objects_from_before_the_upgrade_of_the_brokers_can_be_restored() -> None:
    """Their digests are those of a topic without an id."""
    pipeline = Pipeline(topic_ids=False)
    pipeline.records(3)
    result = pipeline.run("first")
    pipeline.kafka.upgrade()
    pipeline.records(2)
    pipeline.run("second")
    gone = pipeline.a_user_deletes(result)
    restored = pipeline.run("third", action="restore").verification
    assert restored is not None
    assert sorted(restored.restored) == sorted(gone)


# -- the target -------------------------------------------------------------------------------------------------------


def test_a_retry_aims_at_the_same_offsets_although_more_have_come() -> None:
    """The target was pinned before anything was planned; the next run takes the rest."""
    pipeline = Pipeline()
    pipeline.records(4)
    pipeline.dies_after_planning("first")
    pipeline.records(4)
    assert pipeline.run("first").target == offsets((0, 4))
    assert pipeline.run("second").target == offsets((4, 8))
    pipeline.check()


def test_a_target_above_the_cap_is_landed_in_several_batches() -> None:
    """One run with as many batches as necessary; the result has all of them."""
    pipeline = Pipeline(2)
    pipeline.records(9, 0)
    pipeline.records(4, 1)
    result = pipeline.run("first", limits={"records_per_batch": 5})
    assert [b.offsets.count for b in result.batches] == [5, 5, 3]
    assert sum(b.records for b in result.batches) == 13
    assert all(b.mine for b in result.batches)
    assert not result.shared
    pipeline.check()


def test_a_cap_per_run_leaves_the_rest_to_the_next_run() -> None:
    """Shared fairly by the partitions."""
    pipeline = Pipeline(2)
    pipeline.records(9, 0)
    pipeline.records(9, 1)
    assert pipeline.run("first", limits={"records_per_run": 6}).target.count == 6
    assert pipeline.run("second").target.count == 12
    pipeline.check()


def test_an_interval_takes_its_window_and_a_repeated_one_names_the_batches_that_cover_it() -> None:
    """Another run over a covered window succeeds, writes nothing, and returns the batches and their runs."""
    pipeline = Pipeline()
    for timestamp in (10, 20, 30):
        pipeline.records(3, timestamp=timestamp)
    first = pipeline.run("first", "data_interval", window=(20, 30))
    assert first.target == offsets((3, 6))
    before = snapshot(pipeline.bucket)
    again = pipeline.run("again", "data_interval", window=(20, 30))
    assert (again.status, again.shared, again.wrote) == ("ok", True, False)
    assert [b.batch for b in again.batches] == [b.batch for b in first.batches]
    check_unchanged(before, snapshot(pipeline.bucket))
    assert pipeline.run("rest").target == offsets((6, 9))
    assert pipeline.run("before", "data_interval", window=(10, 20)).target == offsets((0, 3))


def test_an_interval_never_includes_unreadable_offsets() -> None:
    """A window that ends within an open transaction is cut there, and landed when it is committed."""
    pipeline = Pipeline()
    pipeline.records(3, timestamp=10)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(2, timestamp=10)
    assert pipeline.run("first", "data_interval", window=(10, 20)).target == offsets((0, 3))
    pipeline.kafka.commit_transaction(TOPIC, 0)
    assert pipeline.run("second").target == offsets((3, 6))
    pipeline.check()


def test_ends_after_transactions_are_those_of_the_vector() -> None:
    """5 committed, 5 aborted, 5 committed: ends after 6, 12 and 18 offsets, 10 records."""
    pipeline = Pipeline()
    ends = []
    for visible in (True, False, True):
        for _ in range(5):
            if visible:
                pipeline.records(1)
            else:
                pipeline.kafka.append_marker(TOPIC, 0)
        pipeline.kafka.append_marker(TOPIC, 0)
        ends.append(pipeline.kafka.ends(TOPIC, [0], "read_committed")[0])
    assert ends == [6, 12, 18]
    result = pipeline.run("first")
    assert (result.target, sum(b.records for b in result.batches)) == (offsets((0, 18)), 10)
    pipeline.check()


def test_a_slice_without_visible_records_makes_no_object_and_is_covered() -> None:
    """Completeness is the offset reached, never a count."""
    pipeline = Pipeline()
    for _ in range(4):
        pipeline.kafka.append_marker(TOPIC, 0)
    result = pipeline.run("first")
    assert (result.status, result.batches[0].objects, result.target) == ("ok", 0, offsets((0, 4)))
    assert pipeline.run("second").status == "empty"


def test_changed_arguments_of_a_retry_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The record of the run counts."""
    pipeline = Pipeline()
    pipeline.records(4)
    pipeline.dies_after_planning("first", params={"offsets": "incremental"})
    with caplog.at_level(logging.WARNING):
        result = pipeline.run("first", "data_interval", window=(5, 6), params={"offsets": "data_interval"})
    assert result.target == offsets((0, 4))
    assert "keeps that target" in caplog.text


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"limits": {"records_per_batch": 0}}, "records_per_batch=0"),
        ({"offsets": "data_interval"}, "does not go with the window None"),
        ({"window": (1, 2)}, "does not go with the window"),
        ({"offsets": "data_interval", "window": (2, 2)}, "empty or reversed"),
        ({"offsets": "data_interval", "window": {}}, "names no partition"),
        ({"offsets": "data_interval", "window": {1: (5, 5)}}, r"partition 1, offsets \[5, 5\), is empty"),
        ({"offsets": "data_interval", "window": {0: (-1, 5)}}, "negative"),
        ({"window": {0: (1, 5)}}, "does not go with the window"),
        ({"offsets": "recover", "limits": {"records_per_run": 5}}, "use records_per_batch"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_an_invalid_request_is_refused(settings: dict[str, Any], why: str) -> None:
    """Before any request to Kafka or the bucket."""
    with pytest.raises(ConfigurationError, match=why):
        Engine(MemoryStore(), SimulatedKafka()).request("r", **settings)


# -- others' batches --------------------------------------------------------------------------------------------------


def test_the_batch_of_another_run_is_carried_out_after_a_bounded_wait() -> None:
    """The wait is bounded, by the process's own clock."""
    pipeline = Pipeline()
    pipeline.records(4)
    pipeline.dies_after_planning("died")
    clock = Clock()
    engine = Engine(pipeline.bucket, pipeline.kafka, sleep=clock.sleep, monotonic=clock.monotonic)
    result = engine.run("second", adopt_wait=30.0)
    assert (result.status, result.shared) == ("ok", True)
    assert 30 <= clock.now < 40
    assert not any(b.mine for b in result.batches)
    pipeline.check()


def test_the_runs_own_batch_is_carried_out_at_once() -> None:
    """A retry does not wait."""
    pipeline = Pipeline()
    pipeline.records(4)
    pipeline.dies_after_planning("first")
    clock = Clock()
    Engine(pipeline.bucket, pipeline.kafka, sleep=clock.sleep, monotonic=clock.monotonic).run(
        "first", adopt_wait=1000.0
    )
    assert clock.now == 0


def test_a_batch_that_its_owner_decides_during_the_wait_is_not_executed_again() -> None:
    """Waiting saves the work: the waiting run uploads nothing."""
    pipeline = Pipeline()
    pipeline.records(4)
    pipeline.dies_after_planning("owner")
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock.now > 5:
            pipeline.run("owner")

    store = FaultyStore(pipeline.bucket)
    result = Engine(store, pipeline.kafka, sleep=sleep, monotonic=clock.monotonic).run("second", adopt_wait=100.0)
    assert result.status == "ok"
    assert [r.operation for r in store.writes()].count("create_upload") == 0
    pipeline.check()


def test_a_backfill_does_not_block_an_incremental_run() -> None:
    """Its open plan is left to its run; recover lands it."""
    pipeline = Pipeline()
    pipeline.records(6, timestamp=10)
    pipeline.run("first", starting={0: 4})
    pipeline.dies_after_planning("backfill", "data_interval", window=(0, 20))
    pipeline.records(2, timestamp=30)
    result = pipeline.run("second")
    assert result.target == offsets((6, 8))
    assert pipeline.run("recovery", "recover").target == offsets((0, 4))
    pipeline.check()


def test_a_batch_keeps_the_layout_it_was_planned_with() -> None:
    """Whichever run completes it, with any later settings of the DAG."""
    import msgspec

    pipeline = Pipeline()
    pipeline.records(2)
    pipeline.dies_after_planning("first")
    pipeline.run("first", layout=msgspec.structs.replace(LAYOUT, naming=Naming(file_delim="-")))
    assert [i.key for i in pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")] == [
        f"{TOPICS_DIR}/{TOPIC}/parity=0/{TOPIC}+0+0000000000.bin"
    ]


def test_a_topic_that_readers_skip_is_warned_about_once_in_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Before its first plan, not at the next try; with a prefix there is nothing to warn about."""
    kafka, bucket = SimulatedKafka(), MemoryStore()
    for topic in ("_hidden", "plain"):
        kafka.create_topic(topic)

    def warnings(topic: str, run: str, **naming: str) -> list[str]:
        kafka.append(topic, 0, b"1", 0)
        caplog.clear()
        for _ in range(2):
            layout = msgspec.structs.replace(LAYOUT, naming=Naming(**naming))
            result = Engine(bucket, kafka, topic=topic).run(run, layout=layout)
            assert result.status == "ok"
        return [record.getMessage() for record in caplog.records if "do not read its objects" in record.getMessage()]

    (warning,) = warnings("_hidden", "first")
    assert f"{TOPICS_DIR}/_hidden/…" in warning
    assert "topic_prefix" in warning
    assert len(warnings("_hidden", "second")) == 1
    assert warnings("_hidden", "third", topic_prefix="topic=") == []
    assert warnings("plain", "first") == []
    assert [info.key for info in bucket.list(f"{TOPICS_DIR}/topic=")] == [
        f"{TOPICS_DIR}/topic=_hidden/parity=0/topic=_hidden+0+0000000002.bin"
    ]


def test_folders_of_a_field_that_readers_skip_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """Debezium's own fields begin with two underscores."""
    pipeline = Pipeline()
    pipeline.kafka.append(TOPIC, 0, b'{"__deleted": "false"}', 0)
    layout = Layout(topics_dir=TOPICS_DIR, format=JsonLines(), partitioner=ByField(names=("__deleted",)))
    assert pipeline.run("first", layout=layout).status == "ok"
    (warning,) = [text for text in caplog.messages if "do not read its objects" in text]
    assert f"{TOPICS_DIR}/{TOPIC}/__deleted=…" in warning
    assert "add.fields.prefix" in warning


def test_a_plan_is_handed_out_before_it_is_executed_and_never_executed_by_the_run_itself() -> None:
    """advance() returns the plan for the Spark job, and continues when called again."""
    pipeline = Pipeline()
    pipeline.records(4)
    engine = Engine(pipeline.bucket, pipeline.kafka)
    request = engine.request("first")
    run = engine.topic_run(request)
    plan = run.advance()
    assert isinstance(plan, Plan)
    assert run.advance() == plan
    engine.execute(plan, request)
    result = run.advance()
    assert isinstance(result, TopicResult)
    assert result.wrote


# -- retention --------------------------------------------------------------------------------------------------------


def test_deleted_offsets_fail_the_run_or_are_skipped_and_recorded() -> None:
    """The gap is in the plan, in the marker and in the result."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.run("first")
    pipeline.records(6)
    pipeline.kafka.delete_records(TOPIC, 0, 5)
    with pytest.raises(DataLossError, match=r"0: \[3, 5\)"):
        pipeline.run("second")
    result = pipeline.run("second", on_data_loss="skip")
    assert (result.status, result.target, result.skipped) == ("ok", offsets((3, 9)), offsets((3, 5)))
    assert sum(b.records for b in result.batches) == 4
    pipeline.check()


def test_a_completely_deleted_target_is_skipped_without_a_job() -> None:
    """A plan without slices is not executed."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.run("first")
    pipeline.records(3)
    pipeline.kafka.delete_records(TOPIC, 0, 6)
    run = Engine(pipeline.bucket, pipeline.kafka)
    result = run.topic_run(run.request("second", on_data_loss="skip")).advance()
    assert isinstance(result, TopicResult)
    assert (result.status, result.skipped) == ("ok", offsets((3, 6)))


def test_a_batch_with_records_lost_after_planning_is_planned_again_without_them() -> None:
    """Policy skip: the stuck batch is abandoned, the rest of it is landed by the next one."""
    pipeline = Pipeline()
    pipeline.records(6)
    pipeline.dies_after_planning("first")
    pipeline.kafka.delete_records(TOPIC, 0, 2)
    with pytest.raises(DataLossError):
        pipeline.run("first")
    result = pipeline.run("first", on_data_loss="skip")
    assert (result.status, result.skipped) == ("ok", offsets((0, 2)))
    assert sum(b.records for b in result.batches) == 4
    pipeline.check()


# -- reruns -----------------------------------------------------------------------------------------------------------


def test_a_rerun_of_an_intact_run_checks_every_object_and_writes_nothing() -> None:
    """Also after later runs; the result is the first one's."""
    pipeline = Pipeline(2)
    for p in (0, 1):
        pipeline.records(5, p)
    first = pipeline.run("first", limits={"records_per_batch": 4})
    pipeline.records(5)
    pipeline.run("second")
    before = snapshot(pipeline.bucket)
    store = FaultyStore(pipeline.bucket)
    again = Engine(store, pipeline.kafka).run("first")
    assert store.writes() == []
    check_unchanged(before, snapshot(pipeline.bucket))
    assert (again.batches, again.target, again.wrote) == (first.batches, first.target, False)
    assert again.verified == sum(b.objects for b in first.batches)


def test_a_rerun_names_objects_that_are_gone_and_writes_nothing() -> None:
    """on_missing=fail: the missing objects, and both remedies."""
    pipeline = Pipeline()
    pipeline.records(3)
    gone = pipeline.a_user_deletes(pipeline.run("first"))
    store = FaultyStore(pipeline.bucket)
    with pytest.raises(MissingObjectError, match=r"action.:.restore.*on_missing='ignore'") as error:
        Engine(store, pipeline.kafka).run("first")
    assert all(key in str(error.value) for key in gone)
    assert store.writes() == []


def test_a_rerun_restores_missing_objects_on_request() -> None:
    """The same records at the same keys; the marker is not changed."""
    pipeline = Pipeline()
    pipeline.records(3)
    first = pipeline.run("first")
    data = {i.key: pipeline.bucket.get(i.key) for i in pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/")}
    marker = pipeline.bucket.get(addresses.marker_key(CONTROL))
    pipeline.a_user_deletes(first)
    pipeline.deleted.clear()
    assert pipeline.run("first", on_missing="restore").verified == first.batches[0].objects
    for key, stored in data.items():
        restored = pipeline.bucket.get(key)
        assert stored is not None
        assert restored is not None
        assert restored.body == stored.body
    assert pipeline.bucket.get(addresses.marker_key(CONTROL)) == marker
    pipeline.check()


def test_a_rerun_ignores_missing_objects_on_request() -> None:
    """It succeeds, and the objects stay gone."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.a_user_deletes(pipeline.run("first"))
    store = FaultyStore(pipeline.bucket)
    assert Engine(store, pipeline.kafka).run("first", on_missing="ignore").verified == 0
    assert store.writes() == []
    pipeline.check()


# -- another incarnation ----------------------------------------------------------------------------------------------


def test_a_recreated_topic_stops_every_run_until_it_is_reset() -> None:
    """Offsets that begin again are never taken for the old ones; after the reset all of the new topic is landed."""
    pipeline = Pipeline()
    pipeline.records(5)
    pipeline.run("first")
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(7)
    before = snapshot(pipeline.bucket)
    with pytest.raises(TopicRecreatedError, match="reset"):
        pipeline.run("second")
    check_unchanged(before, snapshot(pipeline.bucket))
    assert reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    assert pipeline.run("second").target == offsets((0, 7))
    assert pipeline.run("first").target == offsets((0, 5))
    pipeline.check()
    assert any("+g1" in i.key for i in pipeline.bucket.list(f"{TOPICS_DIR}/{TOPIC}/"))


def test_a_run_whose_topic_was_reset_before_it_landed_is_superseded() -> None:
    """Its offsets mean other records now: a new run is needed."""
    pipeline = Pipeline()
    pipeline.records(5)
    pipeline.dies_after("*/runs/*", "first")
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(2)
    reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    with pytest.raises(RunSupersededError, match="Start a new run"):
        pipeline.run("first")
    assert pipeline.run("second").target == offsets((0, 2))
    pipeline.check()


def test_a_run_whose_batch_was_abandoned_by_a_reset_reports_the_gap() -> None:
    """It ends, and reports that none of its offsets was landed."""
    pipeline = Pipeline()
    pipeline.records(5)
    pipeline.dies_after_planning("first")
    pipeline.kafka.create_topic(TOPIC)
    reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    result = pipeline.run("first")
    assert (result.skipped, result.batches) == (offsets((0, 5)), ())


def test_any_run_helps_an_open_reset_to_its_end() -> None:
    """The operator's process ended during it."""
    pipeline = Pipeline()
    pipeline.records(5)
    pipeline.run("first")
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(2)
    store = FaultyStore(pipeline.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key="*.plan.json")
    with pytest.raises(SimulatedCrash):
        reset(Engine(store, pipeline.kafka).committer, operator="me")
    assert pipeline.run("second").target == offsets((0, 2))
    pipeline.check()


# -- a log that ends below the stored offsets -------------------------------------------------------------------------


def test_a_shorter_topic_without_a_topic_id_is_a_recreated_one() -> None:
    """Otherwise its first records would get offsets that count as landed, and would never be read."""
    pipeline = Pipeline(topic_ids=False)
    pipeline.records(10)
    pipeline.run("first")
    before = snapshot(pipeline.bucket)
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(4)
    with pytest.raises(TopicRecreatedError, match=r"partition 0 ends at 4, stored is 10"):
        pipeline.run("second")
    check_unchanged(before, snapshot(pipeline.bucket))


def test_a_truncated_log_is_data_loss_and_not_an_empty_run() -> None:
    """The topic is the same one; an unclean leader election took its end."""
    pipeline = Pipeline()
    pipeline.records(6)
    pipeline.run("first")
    log = pipeline.kafka._partition(TOPIC, 0)
    del log.log[4:]
    with pytest.raises(DataLossError, match=r"partition 0 ends at 4, stored is 6"):
        pipeline.run("second")


def test_an_open_transaction_below_what_was_landed_uncommitted_is_no_truncation() -> None:
    """The last stable offset may lie below the stored offsets when the isolation level was changed."""
    pipeline = Pipeline()
    pipeline.records(2)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(3)
    assert pipeline.run("first", isolation="read_uncommitted").status == "ok"
    assert pipeline.run("second").status == "empty"


@pytest.mark.parametrize("document", ["*runs/first.json", "*.plan.json"])
def test_a_retry_keeps_the_isolation_that_the_run_was_pinned_with(
    document: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its target is after an open transaction: for a reader of committed records the log would seem truncated."""
    pipeline = Pipeline()
    pipeline.records(2)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(3)
    pipeline.dies_after(document, "first", isolation="read_uncommitted", limits={"records_per_batch": 2})
    with caplog.at_level(logging.WARNING):
        result = pipeline.run("first", limits={"records_per_batch": 2})
    assert (result.status, result.target, len(result.batches)) == ("ok", offsets((0, 5)), 3)
    log = Engine(pipeline.bucket, pipeline.kafka).log
    assert {log.require_plan(n)[0].isolation for n in (1, 2, 3)} == {"read_uncommitted"}
    assert "keeps that target; requested now, and ignored: incremental {}, read_committed" in caplog.text
    pipeline.check()


def test_debt_after_an_open_transaction_is_no_truncation() -> None:
    """It is debt of a run that reads uncommitted records; another run has to wait for the transaction."""
    pipeline = Pipeline()
    pipeline.records(2)
    pipeline.kafka.open_transaction(TOPIC, 0)
    pipeline.records(3)
    pipeline.dies_after_planning("first", isolation="read_uncommitted")
    abandon(Engine(pipeline.bucket, pipeline.kafka).committer, 1, release="debt", reason="", operator="")
    with pytest.raises(TransientError, match=r"offsets 0: \[2, 5\) are behind an open transaction"):
        pipeline.run("second")
    pipeline.kafka.commit_transaction(TOPIC, 0)
    assert pipeline.run("second").target == offsets((0, 5))
    pipeline.check(complete=False)


def test_an_explicit_start_below_the_log_start_is_refused_before_it_is_pinned() -> None:
    """The corrected offset works at the next try: no marker has the wrong one."""
    pipeline = Pipeline()
    pipeline.records(9)
    pipeline.kafka.delete_records(TOPIC, 0, 5)
    with pytest.raises(ConfigurationError, match="goes from 5 to 9"):
        pipeline.run("first", starting={0: 2})
    assert pipeline.run("first", starting={0: 7}).target == offsets((7, 9))


def test_a_first_window_of_deleted_offsets_does_not_begin_the_pipeline_below_the_log() -> None:
    """It fails, and incremental runs begin with what Kafka has: what no run could land is no loss of theirs."""
    pipeline = Pipeline()
    pipeline.records(9)
    pipeline.kafka.delete_records(TOPIC, 0, 5)
    with pytest.raises(DataLossError):
        pipeline.run("first", "data_interval", window={0: (2, 8)})
    assert pipeline.run("second").target == offsets((5, 9))


def test_a_restored_older_marker_is_named_when_a_run_of_a_later_generation_goes_on() -> None:
    """Not an index error."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.run("first")
    old = pipeline.bucket.get(addresses.marker_key(CONTROL))
    assert old is not None
    pipeline.kafka.create_topic(TOPIC)
    pipeline.records(3)
    reset(Engine(pipeline.bucket, pipeline.kafka).committer, operator="me")
    pipeline.run("second")
    pipeline.bucket.delete(addresses.marker_key(CONTROL))
    pipeline.bucket.put_new(addresses.marker_key(CONTROL), old.body)
    with pytest.raises(LogTamperedError, match="older version of the marker"):
        pipeline.run("second")


def test_a_rerun_with_another_layout_logs_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Planned batches keep their layout."""
    pipeline = Pipeline()
    pipeline.records(3)
    pipeline.dies_after_planning("first")
    with caplog.at_level(logging.WARNING):
        pipeline.run("first", layout=msgspec.structs.replace(LAYOUT, naming=Naming(file_delim="-")))
    assert "the layout has changed" in caplog.text
    pipeline.check()
