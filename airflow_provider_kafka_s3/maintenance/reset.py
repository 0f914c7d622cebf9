"""Continue with the live incarnation of a topic. Safe beside running drivers, and harmless when repeated."""

from __future__ import annotations

from airflow_provider_kafka_s3.batch.commit import Committer
from airflow_provider_kafka_s3.batch.roll_forward import finish_reset
from airflow_provider_kafka_s3.batch.view import View
from airflow_provider_kafka_s3.documents.offsets import NO_OFFSETS
from airflow_provider_kafka_s3.documents.plan import Plan
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["live_topic_id", "reset"]


def reset(committer: Committer, *, operator: str) -> bool:
    """Turn the pipeline to the live incarnation of its topic; False if it is there already.

    What older batches decided is carried out first, what they did not decide is recorded as lost: their topic is gone.
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
    """Incarnation of the live topic, which can be told from the one that was landed.

    Raises:
        ConfigurationError: one of the two has no id, and the other has: the brokers were upgraded.
    """
    topic = committer.log.topic
    live = committer.source.describe(topic).topic_id or ""
    if bool(live) != bool(view.topic_id):
        raise ConfigurationError(
            f"nobody can tell whether topic {topic!r} is another one than was landed: its stored offsets have topic id "
            f"{view.topic_id or 'none'}, the live topic has {live or 'none'}. Nothing was changed. If it was created "
            f"again, land it with another pipeline and topics_dir; if not, there is nothing to do"
        )
    return live
