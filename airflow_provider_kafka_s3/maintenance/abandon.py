"""Abandon an undecided batch. Safe while any number of drivers run, and harmless when repeated."""

from __future__ import annotations

from typing import Literal

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.maintenance.named_batch import require_plan

__all__ = ["abandon"]


def abandon(
    committer: Committer, batch: int, *, release: Literal["debt", "lost"], reason: str, operator: str
) -> Manifest:
    """Abandon an undecided batch.

    Args:
        committer: decides and completes the batches of the topic.
        batch: its number.
        release: ``debt``: its offsets are planned again, with the configuration of that time; ``lost``: the gap is
            accepted.
        reason: reason, for the record.
        operator: person who abandons it, for the record.

    Raises:
        ConfigurationError: the batch is committed already and can only be rolled forward.
    """
    plan = require_plan(committer, batch)
    decision = committer.abandon(plan, release=release, reason=reason, operator=operator, run=f"operator:{operator}")
    if decision.status != "abandoned":
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is decided ({decision.status}) and can only be rolled forward: "
            f"{committer.log.remedies.recover()}. Nothing was changed. The decision: "
            f"{committer.log.manifest_url(batch)}"
        )
    committer.resolve(plan, decision)
    return decision
