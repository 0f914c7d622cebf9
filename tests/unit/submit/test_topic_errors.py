"""The errors of the topics of a job."""

from __future__ import annotations

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
