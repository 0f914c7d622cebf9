"""Lookup of a batch by the number given to a command."""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["require_committed", "require_plan"]


def require_plan(committer: Committer, batch: int) -> Plan:
    """The plan of a batch that must exist.

    Raises:
        ConfigurationError: there is no such batch.
    """
    plan = committer.log.read_plan(batch)
    if plan is None or plan.type == "release":
        raise ConfigurationError(
            f"topic {committer.log.topic!r} has no batch {batch}; nothing was changed. Its plan would be "
            f"{committer.log.plan_url(batch)}"
        )
    return plan


def require_committed(committer: Committer, batch: int) -> tuple[Plan, Manifest]:
    """The plan and the decision of a batch that must be committed.

    Raises:
        ConfigurationError: there is no such batch, it is undecided, or it is not committed.
    """
    plan = require_plan(committer, batch)
    decision = committer.log.read_manifest(batch)
    if decision is None:
        raise ConfigurationError(
            f"batch {batch} of topic {plan.topic!r} is not decided, so nothing of it is lost yet; abandon it instead: "
            f"{committer.log.remedies.abandon(batch)}"
        )
    if decision.status != "commit":
        raise ConfigurationError(f"batch {batch} of topic {plan.topic!r} has no objects: it is {decision.status}")
    return plan, decision
