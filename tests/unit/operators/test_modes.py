"""Window and action of a run, by conf, params and the operator, and the result in the bucket."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_kafka_s3.config import Window
from airflow_provider_kafka_s3.testing.invariants import check_unchanged, snapshot

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

JANUARY_1 = 1_356_998_400_000
DAY = 86_400_000
JANUARY = ["2013-01-01T00:00:00+00:00", "2013-01-02T00:00:00+00:00"]
FIRST = "topics/orders/partition=0/orders+0+0000000000.json"


@pytest.fixture
def orders(bench: Bench) -> Bench:
    """A topic with two records on each of three days."""
    bench.kafka.create_topic("orders")
    for n in range(6):
        bench.fill("orders", [{"n": n}], at=JANUARY_1 + n * DAY // 2)
    return bench


def offsets(returned: dict[str, Any], topic: str = "orders") -> list[dict[str, Any]]:
    """The offsets of each batch in the XCom of a run."""
    return [batch["offsets"] for batch in returned["topics"][topic]["batches"]]


# -- windows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["incremental", "data_interval"])
@pytest.mark.parametrize(
    "given",
    [{"window": JANUARY}, {"offsets": {"orders": {"0": [0, 2]}}}, {"offsets": {"orders": {"0": [0, 2]}, "x": {}}}],
)
def test_a_run_with_a_window_of_its_own_lands_exactly_that(orders: Bench, kind: str, given: dict[str, Any]) -> None:
    """By times or by offsets, for either kind of task; a cap on incremental runs does not cut it."""
    capped = {"limits": {"records_per_run": 1}} if kind == "incremental" else {}
    returned = orders.run(orders.task(offsets=kind, **capped), conf={"kafka_s3": given})
    assert offsets(returned) == [{"0": [[0, 2]]}]
    assert orders.objects() == {FIRST: [{"n": 0}, {"n": 1}]}
    if "window" in given:
        assert returned["window"] == {"source": "conf", "start": JANUARY[0], "end": JANUARY[1]}
    else:
        assert returned["window"] == {"source": "conf", **given}


def test_after_such_a_run_the_next_one_continues_from_there(orders: Bench) -> None:
    """An incremental run lands the records above, and none twice."""
    orders.run(orders.task(), run_id="r1", conf={"kafka_s3": {"window": JANUARY}})
    assert offsets(orders.run(orders.task(), run_id="r2")) == [{"0": [[2, 6]]}]


def test_a_topic_that_is_left_out_is_not_read(orders: Bench) -> None:
    """It need not exist; it has no result, and nothing of it is in the bucket."""
    task = orders.task(topics=["orders", "never-made"])
    returned = orders.run(task, conf={"kafka_s3": {"offsets": {"orders": {"0": [0, 1]}, "never-made": {}}}})
    assert list(returned["topics"]) == ["orders"]
    assert [info.key for info in orders.store.list("") if "never-made" in info.key] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offsets": {"clicks": {"0": [0, 1]}}}, "name no offsets of topic 'orders'"),
        ({"offsets": {"orders": {"0": [0, 7]}}}, "topic 'orders'.*"),
        ({"offsets": {"orders": {"1": [0, 1]}}}, "topic 'orders'.*"),
        ({"windows": JANUARY}, "kafka_s3 has no 'windows'"),
    ],
)
def test_a_window_that_cannot_be_is_terminal_and_lands_nothing(
    orders: Bench, given: dict[str, Any], message: str
) -> None:
    """A topic that is not named, offsets that the topic does not have, and misspelt names."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException, match=message):
        orders.run(orders.task(), conf={"kafka_s3": given})
    assert orders.objects() == {}
    assert orders.spark.commands == []


def test_an_open_window_is_read_to_the_current_end_and_later_to_its_own(orders: Bench) -> None:
    """Only if the task allows it; a later run of the same window lands the records that were appended since."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    interval = (datetime(2013, 1, 1, tzinfo=UTC), datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(AirflowFailException, match=r"allow_open.: True"):
        orders.run(orders.task(offsets="data_interval"), interval=interval)
    task = orders.task(offsets="data_interval", window=Window(allow_open=True))
    assert offsets(orders.run(task, run_id="r1", interval=interval)) == [{"0": [[0, 6]]}]
    orders.fill("orders", [{"n": 6}], at=JANUARY_1 + 9 * DAY)
    assert offsets(orders.run(task, run_id="r2", interval=interval))[-1] == {"0": [[6, 7]]}


# -- modes ---------------------------------------------------------------------------------------------------------


def test_verify_reads_every_object_and_writes_nothing(orders: Bench) -> None:
    """Of a run that is repeated, or of a new one over the same window; the report is in the XCom."""
    first = orders.run(orders.task())
    before = snapshot(orders.store)
    for run_id in ("manual__1", "another"):
        returned = orders.run(orders.task(), run_id=run_id, conf={"kafka_s3": {"action": "verify"}})
        assert (returned["action"], returned["status"], returned["wrote"]) == ("verify", "ok", False)
        assert returned["topics"]["orders"]["verification"] == {
            "objects": 1,
            "size": first["size"],
            "missing": [],
            "counts": {"missing": 0, "restored": 0, "accepted": 0, "given": 0},
            "restored": [],
            "accepted": [],
            "given": [],
            "uncovered": {},
        }
    check_unchanged(before, snapshot(orders.store))
    assert len(orders.spark.commands) == 1


def test_a_run_without_a_window_verifies_all_landed_batches(orders: Bench) -> None:
    """As one that is triggered without a logical date; it finds missing objects, and writes them again."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    orders.run(orders.task(), run_id="r1")
    task = orders.task(offsets="data_interval")
    assert orders.run(task, run_id="r2", conf={"kafka_s3": {"action": "verify"}})["topics"]["orders"]["verified"] == 1
    orders.store.delete(FIRST)
    with pytest.raises(AirflowFailException, match=r"1 object.*gone"):
        orders.run(task, run_id="r3", conf={"kafka_s3": {"action": "verify"}})
    returned = orders.run(task, run_id="r4", conf={"kafka_s3": {"action": "restore"}})
    assert returned["topics"]["orders"]["verification"]["restored"] == [FIRST]
    assert (returned["window"], list(orders.objects())) == (None, [FIRST])
    with pytest.raises(AirflowFailException, match="no data interval"):
        orders.run(task, run_id="r5")


def test_verify_reports_offsets_of_a_window_that_are_not_landed_and_lands_nothing(orders: Bench) -> None:
    """That is no error: a run that lands will land it."""
    orders.run(orders.task(), run_id="r1", conf={"kafka_s3": {"window": JANUARY}})
    before = snapshot(orders.store)
    conf = {"kafka_s3": {"action": "verify", "offsets": {"orders": {"0": [0, 5]}}}}
    returned = orders.run(orders.task(), run_id="r2", conf=conf)
    assert returned["topics"]["orders"]["verification"]["uncovered"] == {"0": [[2, 5]]}
    check_unchanged(before, snapshot(orders.store))


def test_an_object_that_was_deleted_is_named_and_restored_with_the_same_content(orders: Bench) -> None:
    """The run is cleared, fails with its key, and is cleared once more with the action restore."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    orders.run(orders.task())
    intact = orders.objects()
    orders.store.delete(FIRST)
    for conf in (None, {"kafka_s3": {"action": "verify"}}):
        with pytest.raises(
            AirflowFailException, match=rf"^1 object.*{FIRST.replace('+', '.')}.*restore.*MissingObjectError"
        ):
            orders.run(orders.task(), try_number=2, conf=conf)
        assert orders.objects() == {}
    returned = orders.run(orders.task(), try_number=3, conf={"kafka_s3": {"action": "restore"}})
    assert returned["topics"]["orders"]["verification"]["restored"] == [FIRST]
    assert (returned["action"], returned["wrote"]) == ("restore", True)
    assert orders.objects() == intact
    assert len(orders.spark.commands) == 1


def test_the_operator_s_action_is_the_default(orders: Bench) -> None:
    """A DAG may verify every night, and one of its runs restore."""
    orders.run(orders.task(), run_id="r1")
    orders.store.delete(FIRST)
    nightly = orders.task(action="verify", on_missing="ignore")
    found = orders.run(nightly, run_id="r2")["topics"]["orders"]["verification"]
    assert (found["objects"], found["missing"]) == (0, [FIRST])
    assert orders.run(nightly, run_id="r3", conf={"kafka_s3": {"action": "restore"}})["action"] == "restore"
    assert list(orders.objects()) == [FIRST]


def test_the_try_that_planned_a_batch_is_on_record(orders: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A later try logs which try planned the batch that it continues, where, and when."""
    from airflow.providers.common.compat.sdk import AirflowException

    orders.spark.crash = "Killed"
    with pytest.raises(AirflowException):
        orders.run(orders.task(), try_number=3)
    plan = orders.store.get("topics/_kafka_s3/orders-to-lake/orders/batches/0000000001.plan.json")
    assert plan is not None
    assert json.loads(plan.body)["written_by"].startswith("try 3 on ")
    orders.spark.crash = None
    with caplog.at_level("INFO"):
        orders.run(orders.task(), try_number=4)
    assert "try 3 on " in caplog.text


# -- whoever planned it -------------------------------------------------------------------------------------------


STATES: list[tuple[str | None, bool]] = [
    ("running", True),
    ("restarting", True),
    ("failed", False),
    ("up_for_retry", False),
    ("queued", False),
    (None, False),
]


@pytest.mark.parametrize(("state", "waits"), STATES)
@pytest.mark.parametrize("map_index", [-1, 2])
def test_a_batch_of_a_task_that_does_not_run_any_more_is_not_waited_for(
    orders: Bench, caplog: pytest.LogCaptureFixture, state: str | None, map_index: int, *, waits: bool
) -> None:
    """Airflow 3 gives the state of the task instance that planned the batch by its API, also of a mapped one."""
    name = "land" if map_index < 0 else f"land_{map_index}"

    def get_task_states(*, dag_id: str, map_index: int | None, task_ids: list[str], run_ids: list[str]) -> Any:
        assert (dag_id, map_index, task_ids, run_ids) == ("dag", index, ["land"], ["dead"])
        return {"dead": {name: state}}

    index = None if map_index < 0 else map_index
    plan_and_fail(orders, map_index=map_index)
    with caplog.at_level("INFO"):
        orders.run(orders.task(), run_id="other", ti={"get_task_states": get_task_states})
    assert ("waiting up to 0 s" in caplog.text) is waits
    assert ("has ended: its Airflow task is not running" in caplog.text) is not waits


@pytest.mark.parametrize(("state", "waits"), STATES)
def test_on_airflow_2_the_state_of_the_task_is_read_from_the_database(
    orders: Bench, caplog: pytest.LogCaptureFixture, state: str | None, *, waits: bool
) -> None:
    """By the task instance of the context, as a model of the database."""

    def get_task_instance(**named: Any) -> Any:
        assert named == {"dag_id": "dag", "task_id": "land", "run_id": "dead", "map_index": -1}
        return SimpleNamespace(state=state)

    plan_and_fail(orders)
    with caplog.at_level("INFO"):
        orders.run(orders.task(), run_id="other", ti={"get_task_instance": get_task_instance})
    assert ("waiting up to 0 s" in caplog.text) is waits


def airflow_is_down(**_: object) -> Any:
    """No answer."""
    raise ConnectionError("the API server is away")


@pytest.mark.parametrize(
    "ti",
    [
        {},
        {"get_task_states": lambda **_: {}},
        {"get_task_states": lambda **_: {"dead": {}}},
        {"get_task_states": airflow_is_down},
        {"get_task_instance": lambda **_: None},
        {"get_task_instance": airflow_is_down},
    ],
)
def test_a_batch_of_a_task_without_a_known_state_is_waited_for(
    orders: Bench, caplog: pytest.LogCaptureFixture, ti: dict[str, Any]
) -> None:
    """Without an answer the run neither fails nor executes the batch at the same time as another."""
    plan_and_fail(orders)
    with caplog.at_level("INFO"):
        assert orders.run(orders.task(), run_id="other", ti=ti)["records"] == 6
    assert "waiting up to 0 s" in caplog.text


def plan_and_fail(orders: Bench, *, map_index: int = -1) -> None:
    """A run whose Spark job dies."""
    from airflow.providers.common.compat.sdk import AirflowException

    orders.spark.crash = "Killed"
    with pytest.raises(AirflowException):
        orders.run(orders.task(), run_id="dead", ti={"map_index": map_index})
    orders.spark.crash = None


# -- nothing to do -------------------------------------------------------------------------------------------------


def test_nothing_to_do_is_a_success_or_skips_by_choice(orders: Bench) -> None:
    """A skipped task skips its downstream tasks; a run with landed or covered batches is never skipped."""
    from airflow.providers.common.compat.sdk import AirflowSkipException

    skipping = orders.task(on_empty="skip")
    assert orders.run(skipping, run_id="r1")["records"] == 6
    with pytest.raises(AirflowSkipException, match="nothing to do for orders: land all records since the stored off"):
        orders.run(skipping, run_id="r2")
    assert orders.run(skipping, run_id="r1", try_number=2)["status"] == "ok"
    assert orders.run(orders.task(), run_id="r3")["status"] == "empty"


@pytest.mark.parametrize("outlets", [[], ["lake"]])
def test_a_task_whose_topics_are_all_left_out_has_nothing_to_do(orders: Bench, outlets: list[str]) -> None:
    """As for the other tasks of a DAG when a run names one topic; it writes nothing."""
    from airflow.providers.common.compat.sdk import AirflowSkipException, Asset

    conf = {"kafka_s3": {"offsets": {"clicks": {"0": [0, 1]}, "orders": {}}}}
    given = {"outlets": [Asset(name) for name in outlets]}
    orders.outlet_events = defaultdict(SimpleNamespace)
    returned = orders.run(orders.task(**given), conf=conf)
    assert (returned["status"], returned["topics"], returned["wrote"]) == ("empty", {}, False)
    with pytest.raises(AirflowSkipException, match=r"nothing to do for orders: land explicit offsets \(conf\)"):
        orders.run(orders.task(on_empty="skip", **given), conf=conf)
    assert list(orders.store.list("")) == []


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"action": "repair"}, "^action='repair' is not known; use 'land', 'verify' or 'restore'"),
        ({"on_empty": "fail"}, "on_empty='fail' is not known; use 'success' or 'skip'"),
        ({"window": {"partition_length": 3600}}, "^window: partition_length=3600 must be a timedelta .* or None$"),
    ],
)
def test_wrong_parameters_fail_when_the_dag_is_parsed(bench: Bench, parameters: dict[str, Any], message: str) -> None:
    """The error has the right form."""
    from airflow_provider_kafka_s3.exceptions import ConfigurationError

    with pytest.raises(ConfigurationError, match=message):
        bench.task(**parameters)
