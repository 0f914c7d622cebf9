"""The errors of the topics of a job."""

from __future__ import annotations

from pathlib import Path

from airflow_provider_kafka_s3.exceptions import DataLossError, SparkJobError
from airflow_provider_kafka_s3.spark.spec import JobResult, TopicOutcome
from airflow_provider_kafka_s3.submit.job import JobOutcome
from airflow_provider_kafka_s3.submit.topic_errors import topic_errors


def test_errors_come_from_the_result_file_or_else_from_the_driver_s_output() -> None:
    """Errors keep their kind; an unknown kind, or no result at all, is a transient SparkJobError."""
    result = JobResult(
        topics=(
            TopicOutcome(topic="fine", status="decided"),
            TopicOutcome(topic="gone", status="error", kind="data_loss", message="offsets are gone"),
            TopicOutcome(topic="new", status="error", kind="of_the_future", message="?"),
        )
    )
    errors = topic_errors(JobOutcome(result, "exit status 1"), ["fine", "gone", "new", "silent"])
    assert {topic: (type(e), str(e)) for topic, e in errors.items()} == {
        "gone": (DataLossError, "offsets are gone"),
        "new": (SparkJobError, "?"),
        "silent": (SparkJobError, "exit status 1. The Spark driver ended without a result."),
    }
    assert set(topic_errors(JobOutcome(None, ""), ["fine"])) == {"fine"}


def test_a_jvm_whose_memory_ran_out_is_the_error_of_each_topic_that_only_noticed_its_end() -> None:
    """The driver's own message says nothing; its output has the reason. Other errors stay."""
    output = (Path(__file__).with_name("outputs") / "out_of_memory.txt").read_text()
    output = f"Cannot execute: spark-submit. Error code is: 52.\n{output}"
    ended = "the Spark job failed: Job 0 cancelled because SparkContext was shut down"
    outcomes = (
        TopicOutcome(topic="large", status="error", kind="spark_job", message=ended),
        TopicOutcome(topic="slow", status="error", kind="spark_job", message="the Spark job failed: 503"),
        TopicOutcome(topic="gone", status="error", kind="data_loss", message="offsets are gone"),
    )
    errors = topic_errors(JobOutcome(JobResult(topics=outcomes), output), ["large", "slow", "gone", "silent"])
    for topic in ("large", "silent"):
        assert type(errors[topic]) is SparkJobError
        assert str(errors[topic]).startswith("the memory of a JVM of Spark ran out (OutOfMemoryError: Java heap space)")
        assert "raise driver_memory" in str(errors[topic])
    assert (str(errors["slow"]), str(errors["gone"])) == ("the Spark job failed: 503", "offsets are gone")


def test_credentials_that_expire_during_a_job_have_remedies() -> None:
    """Whether it is in the driver's result or its output; other errors are not changed."""
    answer = "UploadPart s3://lake/k: 400 ExpiredToken: The provided token has expired."
    outcomes = (
        TopicOutcome(topic="slow", status="error", kind="transient", message=answer),
        TopicOutcome(topic="gone", status="error", kind="data_loss", message="offsets are gone"),
    )
    errors = topic_errors(JobOutcome(JobResult(topics=outcomes), answer), ["slow", "gone", "silent"])
    notes = {topic: "".join(getattr(error, "__notes__", [])) for topic, error in errors.items()}
    assert notes["gone"] == ""
    for way_out in ("records_per_batch", "DurationSeconds", "aws_conn_id=None"):
        assert way_out in notes["slow"]
        assert way_out in notes["silent"]
