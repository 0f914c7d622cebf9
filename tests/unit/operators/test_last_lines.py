"""The last lines of a failed task, where the eye is, are what happened and what to do."""

from __future__ import annotations

import logging
import traceback
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException  # noqa: TID253 - after AIRFLOW_HOME is set

from airflow_provider_kafka_s3.airflow.spark_submit_job import _Hook
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, task_error
from airflow_provider_kafka_s3.exceptions import KafkaUnavailableError
from airflow_provider_kafka_s3.messages import readable

if TYPE_CHECKING:
    from tests.unit.operators.conftest import Bench

# Of Spark 4.0, with an empty cache.
IVY = """:: loading settings :: url = jar:file:/opt/spark/jars/ivy-2.5.3.jar!/org/apache/ivy/ivysettings.xml
Ivy Default Cache set to: /home/airflow/.ivy2.5.2/cache
The jars for the packages stored in: /home/airflow/.ivy2.5.2/jars
org.apache.spark#spark-sql-kafka-0-10_2.13 added as a dependency
:: resolving dependencies :: org.apache.spark#spark-submit-parent-2a8c7d45-30c1-4c6f-8b37-5e1f6f0e8a1b;1.0
\tconfs: [default]
\tfound org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.1 in central
downloading https://packages.example.com/maven2/org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.1/spark-sql.jar ...
\t[SUCCESSFUL ] org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.1!spark-sql-kafka-0-10_2.13.jar (98ms)
:: resolution report :: resolve 4066ms :: artifacts dl 1403ms
\t:: modules in use:
\torg.apache.spark#spark-sql-kafka-0-10_2.13;4.0.1 from central in [default]
\t:: evicted modules:
\torg.slf4j#slf4j-api;2.0.7 by [org.slf4j#slf4j-api;2.0.16] in [default]
\t---------------------------------------------------------------------
\t|                  |            modules            ||   artifacts   |
\t|       conf       | number| search|dwnlded|evicted|| number|dwnlded|
\t---------------------------------------------------------------------
\t|      default     |   11  |   11  |   11  |   0   ||   11  |   11  |
\t---------------------------------------------------------------------
:: retrieving :: org.apache.spark#spark-submit-parent-2a8c7d45-30c1-4c6f-8b37-5e1f6f0e8a1b
\tconfs: [default]
\t11 artifacts copied, 0 already retrieved (58022kB/63ms)"""


def of_airflow(error: BaseException) -> list[str]:
    """The lines that Airflow logs for an exception."""
    return "".join(traceback.format_exception(error)).splitlines()


def test_a_failure_ends_with_what_happened_and_what_to_do(topics: Bench) -> None:
    """Each command in a line of its own, behind few frames."""
    topics.spark.failing["orders"] = (
        "record",
        "offset 0 is no JSON; " + "see this " * 9 + "(`kafka-s3 status`)",
    )
    with pytest.raises(AirflowException) as failed:
        topics.run(topics.task())
    lines = of_airflow(failed.value)
    message = readable(str(failed.value)).splitlines()
    assert len(message) > 1
    assert lines[-len(message) :] == message
    assert [line for line in lines if "direct cause" in line or "During handling" in line] == []


@pytest.fixture
def base_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """Airflow's own address, as its configuration has it."""
    section = "WEBSERVER" if version("apache-airflow").startswith("2.") else "API"
    monkeypatch.setenv(f"AIRFLOW__{section}__BASE_URL", "https://airflow.example.com/prod/")
    return "https://airflow.example.com/prod"


@pytest.mark.parametrize(
    ("failing", "path"),
    [(("orders",), "topic/1/orders-to-lake/orders"), (("orders", "clicks"), "")],
)
def test_a_failure_ends_with_the_address_of_the_page(
    topics: Bench, base_url: str, monkeypatch: pytest.MonkeyPatch, failing: tuple[str, ...], path: str
) -> None:
    """Of the topic; of the list, if several topics failed."""
    monkeypatch.setenv("AIRFLOW__KAFKA_S3__STORES", '[{"bucket": "other"}, {"bucket": "lake"}]')
    topics.spark.failing |= dict.fromkeys(failing, ("record", "offset 0 is no JSON"))
    with pytest.raises(AirflowException) as failed:
        topics.run(topics.task(topics=[*failing]))
    assert of_airflow(failed.value)[-1] == f"The page: {base_url}/kafka-s3/{path}"


@pytest.mark.parametrize("stores", ["", '[{"bucket": "other"}]', '[{"bucket": "lake", "topics_dir": "x"}]', "[", "[7]"])
def test_a_failure_names_no_page_that_does_not_show_it(
    topics: Bench, base_url: str, monkeypatch: pytest.MonkeyPatch, stores: str
) -> None:
    """Nor does a wrong setting of the page hide what happened."""
    monkeypatch.setenv("AIRFLOW__KAFKA_S3__STORES", stores)
    topics.spark.failing["orders"] = ("record", "offset 0 is no JSON")
    with pytest.raises(AirflowException, match="offset 0 is no JSON") as failed:
        topics.run(topics.task())
    assert "The page" not in str(failed.value)


def test_tracebacks_of_causes_are_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Before the message, which is at ERROR."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(AirflowException), as_task_error(logging.getLogger()):
        raise KafkaUnavailableError("no broker answers") from OSError("connection refused")
    came_from, message = caplog.records
    assert (came_from.levelno, came_from.exc_info is not None) == (logging.DEBUG, True)
    assert (message.levelno, message.message, message.exc_info) == (logging.ERROR, "no broker answers", None)


def test_an_error_of_kafka_has_no_frames_of_the_client(topics: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor have several topics that fail together."""

    def away(_: str) -> None:
        raise KafkaUnavailableError("no broker answers")

    monkeypatch.setattr(topics.kafka, "describe", away)
    for names in ("orders", "orders,clicks"):
        with pytest.raises(AirflowException) as failed:
            topics.run(topics.task(topics=names), run_id=names)
        assert (failed.value.__cause__, failed.value.__suppress_context__) == (None, True)


def test_an_unexpected_error_keeps_its_traceback() -> None:
    """Only that shows where it comes from."""
    bug = ZeroDivisionError("division by zero")
    for cause in (bug, ExceptionGroup("topics failed", [bug, KafkaUnavailableError("no broker answers")])):
        error = task_error(logging.getLogger(), "division by zero", terminal=False, cause=cause)
        assert error.__cause__ is cause


def test_lines_of_ivy_are_at_debug_and_lines_of_spark_have_one_time() -> None:
    """An error of Ivy is shown, and all lines are kept for the error of the job."""
    shown: list[str] = []
    hidden: list[str] = []
    hook = _Hook({}, {"conn_id": None})
    log: Any = SimpleNamespace(info=lambda line, *_: shown.append(line), debug=hidden.append)
    hook._log = log
    problem = "\t\tmodule not found: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9"
    spark = "26/11/28 02:03:04 WARN NativeCodeLoader: Unable to load native-hadoop library"
    hook._process_spark_submit_log(iter([*IVY.splitlines(), problem, spark, "INFO topic orders: 1 slice read"]))
    assert hidden == IVY.splitlines()
    assert shown == [problem.strip(), spark.partition("04 ")[2], "INFO topic orders: 1 slice read"]
    assert [*hook.output] == [*IVY.splitlines(), problem, spark, "INFO topic orders: 1 slice read"]
