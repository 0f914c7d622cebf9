"""The output of a ``spark-submit`` that ended without a result; ``outputs`` has recorded ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error, SparkJobError
from airflow_provider_kafka_s3.spark.failures import explain
from airflow_provider_kafka_s3.submit.driver_output import explain_output

OUTPUTS = Path(__file__).with_name("outputs")
CALLED = f"Cannot execute: spark-submit --master yarn {'--conf a=b ' * 500}job.py. Error code is: 1."
TRACE = ["\tat org.apache.spark.deploy.SparkSubmit$$anon$2.run(SparkSubmit.scala:1)", "\t... 20 more"]


@pytest.mark.parametrize(
    ("output", "kind", "head"),
    [
        ("yarn", ConfigurationError, "Spark has no configuration of YARN: HADOOP_CONF_DIR is not set. Set it to"),
        (
            "packages_not_found",
            SparkJobError,
            "packages: org.nobody:nothing_2.13:1.0 was not found, and not all repositories could be reached: packages.",
        ),
        (
            "packages_unreachable",
            SparkJobError,
            "packages: no repository can be reached for org.nobody:nothing_2.13:1.0: repo.example.com:1: java.net.Conn",
        ),
        ("master_unknown", ConfigurationError, "the Spark master is invalid: correct host and port"),
        ("master_unparsable", ConfigurationError, "'spark:127.0.0.1:7077' is no Spark master: correct host and port"),
        ("master_without_port", ConfigurationError, "'spark://127.0.0.1' is no Spark master: correct host and port"),
        ("master_silent", SparkJobError, "the Spark master does not answer: check that it runs, and host and port"),
        ("heap", SparkJobError, "Error occurred during initialization of VM; Too small maximum heap. The Spark driver"),
        (
            "out_of_memory",
            SparkJobError,
            "the memory of a JVM of Spark ran out (OutOfMemoryError: Java heap space): it",
        ),
        ("option", SparkJobError, "Error: Unrecognized option: --no-such-option. The Spark driver ended"),
    ],
)
def test_the_message_begins_with_the_cause_and_ends_with_the_shortened_command(
    output: str, kind: type[KafkaS3Error], head: str
) -> None:
    """A user interface shows the start only; an error that a retry cannot fix is terminal."""
    error = explain_output(f"{CALLED}\n{(OUTPUTS / f'{output}.txt').read_text()}")
    assert type(error) is kind
    assert str(error).startswith(head)
    assert "(exit code 1)" in str(error)
    assert str(error).endswith("…")
    assert str(error).index("spark-submit was called as: spark-submit --master yarn") > len(str(error)) - 200


@pytest.mark.parametrize(
    ("output", "head"),
    [
        ("", "it printed nothing. The Spark driver ended without a result."),
        ("exit status 1", "exit status 1. The Spark driver ended without a result."),
        (
            "[Errno 2] No such file or directory: 'spark3-submit'",
            "[Errno 2] No such file or directory: 'spark3-submit'",
        ),
        ("Cannot execute: spark-submit. Error code is: 137.", "it was killed; most likely the worker's memory ran out"),
        (
            "Cannot execute: spark-submit. Error code is: -9.\nCaused by: x.ConnectException: no",
            "it was killed; most likely the worker's memory ran out",
        ),
        (
            "Cannot execute: spark-submit. Error code is: 137.\nWARNING: JAVA_HOME is not set",
            "it was killed; most likely the worker's memory ran out",
        ),
        (
            "Cannot execute: spark-submit. Error code is: 52.",
            "the memory of a JVM of Spark ran out (Error code is: 52): it",
        ),
        (
            "Its exit code is 1.\nTraceback (most recent call last):\n  File x\nImportError: no module named 'x'",
            "ImportError: no module named 'x'. The Spark driver ended without a result (exit code 1).",
        ),
        (
            f"{CALLED}\n26/11/22 08:02:19 ERROR SparkContext: Error initializing.\n26/11/22 08:02:20 INFO Hook: end",
            "SparkContext: Error initializing. The Spark driver ended",
        ),
    ],
)
def test_the_error_has_the_first_known_cause(output: str, head: str) -> None:
    """An exception, a logged error, the exit of the process: the first one that exists."""
    error = explain_output(output)
    assert type(error) is SparkJobError
    assert str(error).startswith(head)


def test_packages_that_no_repository_has_are_a_terminal_error() -> None:
    """All of them were reached, so a retry cannot help."""
    output = (OUTPUTS / "packages_not_found.txt").read_text()
    error = explain_output("\n".join(line for line in output.splitlines() if "Host packages." not in line))
    assert type(error) is ConfigurationError
    assert str(error).startswith(
        "packages: org.nobody:nothing_2.13:1.0 is in none of the searched repositories (central."
    )


def test_an_unavailable_connector_is_an_error_with_both_remedies() -> None:
    """The package is the default one: the remedies are a reachable repository, or local jars."""
    for file in ("packages_unreachable", "packages_not_found"):
        output = (OUTPUTS / f"{file}.txt").read_text()
        for artifact in ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10"):
            message = str(explain_output(output.replace("org.nobody#nothing", f"org.apache.spark#{artifact}")))
            assert f"org.apache.spark:{artifact}_2.13:1.0" in message
            assert "spark.jars.ivySettings in conf" in message
            assert "on the worker by jars=" in message
            assert "is fetched if neither jars nor packages" in message
        assert "is fetched if" not in str(explain_output(output))


def test_the_quoted_output_is_short_and_without_the_frames_of_java() -> None:
    """The message has the end of the output, up to a limit; it starts with the root cause of the last exception."""
    output = "\n".join(
        [
            CALLED,
            *(f"a line before it, {n}" for n in range(1000)),
            'Exception in thread "main" org.apache.spark.SparkException: it broke',
            *TRACE * 300,
            "Caused by: java.io.IOException: No space left on device",
            *TRACE,
        ]
    )
    text = str(explain_output(output))
    assert text.startswith(
        "IOException: No space left on device. The Spark driver ended without a result (exit code 1)."
    )
    assert "SparkException: it broke\nCaused by: java.io.IOException: No space left on device\n" in text
    assert "SparkSubmit.scala" not in text
    assert len(text) < 4_000


def test_a_java_that_is_too_old_is_named() -> None:
    """Spark 4 needs 17; the output has only the class file version."""
    output = (
        'Exception in thread "main" java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been '
        "compiled by a more recent version of the Java Runtime (class file version 61.0), this version of the Java "
        "Runtime only recognizes class file versions up to 55.0"
    )
    error = explain_output(f"{CALLED}\n{output}")
    assert type(error) is ConfigurationError
    assert str(error).startswith("Java is too old for this Spark, which needs Java 17 or 21: set JAVA_HOME")


def test_the_driver_s_own_exception_has_the_same_explanation() -> None:
    """A master that cannot be parsed is found by the session, whose error is in the result."""
    output = (OUTPUTS / "master_unparsable.txt").read_text()
    raised = RuntimeError("An error occurred while calling" + output.rpartition("An error occurred while calling")[2])
    error = explain(raised)
    assert type(error) is ConfigurationError
    assert str(error).startswith("'spark:127.0.0.1:7077' is no Spark master")
