"""Give a topic free of which a pipeline has landed nothing, so that another pipeline may land it.

Safe while drivers run, and harmless when repeated. First the log ends: its last plan is a release, behind which no
process appends another one, so that a run that is late lands nothing. Then the owner document is marked.
"""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.roll_forward import finish_reset
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.manifest import Manifest
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["release", "undecided"]


def undecided(committer: Committer) -> tuple[int, ...]:
    """The batches that a release would abandon; nothing is written.

    Raises:
        PipelineConflictError: the topic belongs to another pipeline.
        ConfigurationError: something of the topic is landed.
        TerminalError: documents cannot be trusted.
    """
    log = committer.log
    if log.released() is not None:
        return ()
    log.require_owner()
    view = _view(committer)
    if view is None:
        return ()
    decisions = [_decision(committer, view, batch) for batch in range(1, view.next)]
    return tuple(batch for batch, decision in enumerate(decisions, start=1) if decision is None)


def release(committer: Committer, *, reason: str, operator: str) -> None:
    """Release a topic of which nothing is landed. Undecided batches are abandoned.

    Args:
        committer: decides and completes the batches of the topic.
        reason: why batches are abandoned, for the record.
        operator: person who decides, for the record.

    Raises:
        PipelineConflictError: the topic belongs to another pipeline.
        ConfigurationError: something of the topic is landed; it stays with the pipeline.
        TerminalError: documents cannot be trusted.
    """
    log, run = committer.log, f"operator:{operator}"
    while log.released() is None:
        log.require_owner()
        view = _view(committer)
        if view is not None:
            if view.open_reset is not None:
                finish_reset(committer, view, view.open_reset)
                continue
            for batch in range(1, view.next):
                if _decision(committer, view, batch) is None:
                    # Not lost: until the release is planned, a run may plan the offsets again.
                    committer.abandon(view.open_plans[batch], release="debt", reason=reason, operator=operator, run=run)
                    _decision(committer, view, batch)
        # The number may be taken by a run: then its batch is looked at as well.
        log.create_plan(_last_plan(committer, view, run))
    log.release_owner()


def _view(committer: Committer) -> View | None:
    """The log; None if its first run has ended before there was one."""
    log = committer.log
    marker = log.read_marker()
    if marker is None and log.read_plan(1) is None:
        return None
    return log.view(marker)


def _decision(committer: Committer, view: View, batch: int) -> Manifest | None:
    """The decision about a batch; None while it has none.

    Raises:
        ConfigurationError: it has objects.
    """
    log = committer.log
    decision = log.require_decision(batch)[0] if view.marker.is_resolved(batch) else log.read_manifest(batch)
    if decision is not None and decision.objects:
        raise ConfigurationError(
            f"topic {log.topic!r} is not released: pipeline {log.pipeline!r} has landed records of it in batch "
            f"{batch}, and another pipeline would land them again. To land it with another pipeline, use another "
            f"topics_dir. The batch: {log.manifest_url(batch)}"
        )
    return decision


def _last_plan(committer: Committer, view: View | None, run: str) -> Plan:
    return Plan(
        batch=1 if view is None else view.next,
        type="release",
        topic=committer.log.topic,
        topic_id="" if view is None else view.topic_id,
        generation=0 if view is None else view.marker.generation,
        run=run,
        tail=False,
        isolation="read_committed",
        slices=(),
        skipped=NO_OFFSETS,
        layout=None,
        layout_sha256="",
        start=None if view is None else view.start_of_log,
    )
