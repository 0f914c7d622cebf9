"""Continue with the live incarnation of a topic. Safe while drivers run, and harmless when repeated."""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.roll_forward import finish_reset
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.codec import printable
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["live_topic_id", "reset"]


def reset(committer: Committer, *, operator: str) -> bool:
    """Continue with the live incarnation of the topic; False if the marker has that incarnation already.

    Older decided batches are rolled forward first; undecided ones are recorded as lost, since their topic is gone.
    """
    while True:
        view = committer.log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            continue
        live = live_topic_id(committer, view)
        if live == view.topic_id:
            return False
        committer.log.create_plan(
            Plan(
                batch=view.next,
                type="reset",
                topic=committer.log.topic,
                topic_id=view.topic_id,
                generation=view.marker.generation,
                run=f"operator:{operator}",
                tail=False,
                isolation="read_committed",
                slices=(),
                skipped=NO_OFFSETS,
                layout=None,
                layout_sha256="",
                start=view.start_of_log,
                new_topic_id=live,
            )
        )
        view = committer.log.view()
        if (pending := view.open_reset) is not None:
            finish_reset(committer, view, pending)
            return True


def live_topic_id(committer: Committer, view: View) -> str:
    """Incarnation of the live topic.

    Raises:
        ConfigurationError: only one of the live and the landed topic has an id (the brokers were upgraded), so the two
            cannot be compared.
    """
    topic = committer.log.topic
    live = committer.source.describe(topic).topic_id or ""
    if bool(live) != bool(view.topic_id):
        raise ConfigurationError(
            f"it is unknown whether topic {topic!r} is the landed one: the stored offsets have topic id "
            f"{printable(view.topic_id) or 'none'}, the live topic has {live or 'none'}. Nothing was changed. If it "
            f"was created again, land it with another pipeline and topics_dir; if not, there is nothing to do"
        )
    return live
