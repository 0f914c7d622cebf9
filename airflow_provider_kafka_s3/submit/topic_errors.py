"""What went wrong with each topic of a Spark job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.submit.driver_output import explain_output

if TYPE_CHECKING:
    from airflow_provider_kafka_s3.submit.job import JobOutcome

__all__ = ["topic_errors"]

_EXPIRED: Final = re.compile(r"\b(ExpiredToken|TokenRefreshRequired)|the session of the role \S+ has ended")
"""How S3, or our own client, says that the session of temporary credentials has ended."""

_EXPIRED_HELP: Final = (
    "the job's temporary credentials ended while it ran and could not be renewed; a retry begins the batch anew. The "
    "session of a role_arn is renewed by driver and executors themselves, if they reach STS and the role is assumed by "
    "keys of the AWS connection or by what their own machines have; session tokens of a connection, SAML and Google's "
    "identities are not. Let sessions last longer than the job (in the extra of the AWS connection: "
    '"assume_role_kwargs": {"DurationSeconds": 14400}, up to what the role allows), or use aws_conn_id=None with roles '
    "of their own for the machines of the driver and the executors; smaller batches (records_per_batch of limits) "
    "make the jobs of batches that are planned from then on shorter"
)


def topic_errors(outcome: JobOutcome, topics: Iterable[str]) -> dict[str, KafkaS3Error]:
    """What went wrong with each topic of a job: what its driver wrote, or else what its output means.

    Args:
        outcome: of the job.
        topics: of the job.
    """
    by_topic = {} if outcome.result is None else {ended.topic: ended for ended in outcome.result.topics}
    errors: dict[str, KafkaS3Error] = {}
    for topic in topics:
        ended = by_topic.get(topic)
        if ended is None:
            errors[topic] = explain_output(outcome.output)
        elif (error := ended.error) is not None:
            errors[topic] = error
    for error in errors.values():
        if _EXPIRED.search(str(error)):
            error.add_note(_EXPIRED_HELP)
    return errors
