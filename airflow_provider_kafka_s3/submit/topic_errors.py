"""The errors of the topics of a Spark job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.exceptions import KafkaS3Error, SparkJobError
from airflow_provider_kafka_s3.spark.memory_errors import ends_with_the_jvm
from airflow_provider_kafka_s3.submit.driver_output import explain_output

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.submit.job import JobOutcome

__all__ = ["topic_errors"]

_EXPIRED: Final = re.compile(r"\b(ExpiredToken|TokenRefreshRequired)|the session of the role \S+ has ended")
"""Messages of S3, and of this package's client, about an expired session of temporary credentials."""

_EXPIRED_HELP: Final = (
    "the job's temporary credentials expired while it ran and could not be renewed; a retry starts the batch again. "
    "Driver and executors renew the session of a role_arn, if they can reach STS and assume the role with the keys of "
    "the AWS connection or the credentials of their own machines; session tokens of a connection, SAML and Google's "
    "identities cannot be renewed. Use sessions longer than the job (in the extra of the AWS connection: "
    '"assume_role_kwargs": {"DurationSeconds": 14400}, up to what the role allows), or use aws_conn_id=None with roles '
    "of their own for the machines of the driver and the executors; smaller batches (records_per_batch of limits) "
    "make later jobs shorter"
)


def topic_errors(outcome: JobOutcome, topics: Iterable[str]) -> dict[str, KafkaS3Error]:
    """The errors of the failed topics of a job, from the driver's result, or else from its output.

    Args:
        outcome: of the job.
        topics: of the job.
    """
    results = {} if outcome.result is None else {result.topic: result for result in outcome.result.topics}
    errors: dict[str, KafkaS3Error] = {}
    for topic in topics:
        result = results.get(topic)
        if result is None:
            errors[topic] = explain_output(outcome.output)
        elif (error := result.error) is not None:
            # The driver has no more of a JVM that has ended; its output has the reason.
            noticed = type(error) is SparkJobError and bool(outcome.output) and ends_with_the_jvm(str(error))
            errors[topic] = explain_output(outcome.output) if noticed else error
    for error in errors.values():
        if _EXPIRED.search(str(error)):
            error.add_note(_EXPIRED_HELP)
    return errors
