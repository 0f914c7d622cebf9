"""The operator that sends landed records back to Kafka."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseOperator  # noqa: TID253 - it is the base class

from airflow_provider_kafka_s3.airflow import connections, parameters
from airflow_provider_kafka_s3.airflow.metrics import task_metrics
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, page_line
from airflow_provider_kafka_s3.config.values import require_type
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError, NothingToReplayError, message_of
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.times import parse_time

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.batch.location import TopicLocation
    from airflow_provider_kafka_s3.replay.process import ReplayProcess
    from airflow_provider_kafka_s3.replay.request import Missing, ReplayRequest, Writer
    from airflow_provider_kafka_s3.replay.run import Replayed

__all__ = ["S3ToKafkaOperator"]


class S3ToKafkaOperator(BaseOperator):
    """Send landed records of a topic to a topic of Kafka, each exactly once.

    What is sent is pinned by the first try. A try that is repeated continues where the last committed transaction
    ended, whatever was killed; a task that is cleared after it has succeeded sends nothing more. ``docs/replay.md`` has
    the rules. Records are sent by the worker, without Spark.

    Args:
        bucket: name of the bucket. (templated)
        topic: the topic that was landed. (templated)
        pipeline: its pipeline. (templated)
        target: the topic to send to, which exists. (templated)
        topics_dir: prefix of the pipeline's keys, or of the sink's. (templated)
        replay_id: id of the replay, for which each record is sent once; None: one for each task of a run. (templated)
        at: number of the last batch; None: the latest complete state when the first try begins.
        since: records at or after this time, with its zone: a ``datetime``, or ISO 8601. (templated)
        until: records before this time. (templated)
        offsets: ranges ``(start, end)`` per Kafka partition, the end excluded.
        partitions: only these Kafka partitions.
        key: only records with this key: a text, which is UTF-8 in Kafka, or any bytes. (templated)
        generation: records landed after so many resets of the topic; None: the latest ones.
        without: what the objects do not keep and records may be sent without: ``"key"``, ``"headers"``,
            ``"timestamp"``, ``"order"``, ``"bytes"``, ``"nulls"``, ``"lost"``, ``"gaps"``.
        same_topic: allow the topic that was landed as target: it then has the records twice.
        keeps_partitions: send to the same partition numbers; False: to that of the key's hash.
        records_per_second: of all partitions together, at most; None: no limit.
        written_by: the S3 sink that wrote the objects, ``"confluent"`` or ``"deviantart"``, and has stopped; the
            pipeline is where the documents of the replay are. None: the pipeline wrote them.
        folders: with ``written_by``: only objects in these folders, such as ``"year=2026/month=01"``. (templated)
        on_empty: without a record in the selection the task fails (``"fail"``), or is skipped (``"skip"``). Nothing is
            recorded: a later try sends what has been landed by then. A topic that no run has begun to land is an error.
        kafka_conn_id: connection of type ``kafka`` to the cluster of the target.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.

    Returns:
        ``{"replay": "…", "target": "orders-again", "batch": 7, "records": 40000, "sent": {"0": 20000, "1": 20000}}``.

    Raises:
        AirflowSkipException: there is nothing to send, with ``on_empty="skip"``.
        AirflowFailException: a retry cannot succeed.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = (
        "bucket",
        "topic",
        "pipeline",
        "target",
        "topics_dir",
        "replay_id",
        "since",
        "until",
        "key",
        "folders",
    )
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        bucket: str,
        topic: str,
        pipeline: str,
        target: str,
        topics_dir: str = "topics",
        replay_id: str | None = None,
        at: int | None = None,
        since: dt.datetime | str | None = None,
        until: dt.datetime | str | None = None,
        offsets: Mapping[int, tuple[int, int]] | None = None,
        partitions: Sequence[int] | None = None,
        key: str | bytes | None = None,
        generation: int | None = None,
        without: Sequence[str] = (),
        same_topic: bool = False,
        keeps_partitions: bool = True,
        records_per_second: float | None = None,
        written_by: str | None = None,
        folders: Sequence[str] = (),
        on_empty: Literal["fail", "skip"] = "fail",
        kafka_conn_id: str = "kafka_default",
        aws_conn_id: str | None = "aws_default",
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs)
        super().__init__(**kwargs)
        self.bucket = bucket
        self.topic = topic
        self.pipeline = pipeline
        self.target = target
        self.topics_dir = topics_dir
        self.replay_id = replay_id
        self.at = at
        self.since = since
        self.until = until
        self.offsets = offsets
        self.partitions = partitions
        self.key = key
        self.generation = generation
        self.without = without
        self.same_topic = same_topic
        self.keeps_partitions = keeps_partitions
        self.records_per_second = records_per_second
        self.written_by = written_by
        self.folders = folders
        self.on_empty = on_empty
        self.kafka_conn_id = kafka_conn_id
        self.aws_conn_id = aws_conn_id
        self._process: ReplayProcess | None = None
        self._killed = False
        # For OpenLineage: the landed topic, the cluster, and the result.
        self._lineage: tuple[TopicLocation, dict[str, Any], Replayed | None] | None = None
        for name in ("bucket", "topic", "pipeline", "target"):
            parameters.require_text(name, getattr(self, name))
        require_type("on_empty", on_empty, Literal["fail", "skip"])
        for name, argument in (("without", without), ("folders", folders)):
            if isinstance(argument, str):
                raise ConfigurationError(f"{name}={argument!r} must be a list, such as [{argument!r}]")

    def execute(self, context: Context) -> dict[str, Any]:
        """Send all records that this replay has not sent yet."""
        from airflow_provider_kafka_s3.batch.location import TopicLocation
        from airflow_provider_kafka_s3.replay.run import ReplayProcess, replay

        self._process = ReplayProcess()
        if self._killed:
            # Its process was not known yet.
            self._process.kill()
        # The page shows no objects of other sinks.
        shown = [self.topic] if self.written_by is None else []
        with (
            task_metrics(context, self.pipeline) as metrics,
            as_task_error(self.log, page=lambda: page_line(self, shown)),
        ):
            access = connections.s3_access(self.aws_conn_id)
            place = TopicLocation(
                self.bucket,
                TopicAddress(topics_dir=self.topics_dir, pipeline=self.pipeline, topic=self.topic),
                access.settings,
                access.credentials,
                connections.connection_options(self.kafka_conn_id, self.aws_conn_id),
            )
            config = connections.kafka_config(self.kafka_conn_id)
            self._lineage = place, config, None
            try:
                done = replay(place, config, self._request(context), process=self._process)
            except NothingToReplayError as e:
                if self.on_empty == "skip":
                    raise AirflowSkipException(message_of(e)) from e
                raise
            self._lineage = place, config, done
            records = sum(done.sent.values())
            metrics.send("replayed_records", records, topic=self.topic)
        self.log.info(
            "replay %s: %s of topic %s sent to topic %s", done.replay, count(records, "record"), self.topic, self.target
        )
        return {
            "replay": done.replay,
            "target": done.target,
            "batch": done.batch,
            "records": records,
            "sent": {str(partition): number for partition, number in sorted(done.sent.items())},
        }

    def on_kill(self) -> None:
        """End the process that sends; its open transactions are aborted, and a later try continues."""
        self._killed = True
        if self._process is not None:
            self._process.kill()

    def get_openlineage_facets_on_complete(self, task_instance: object) -> Any:  # noqa: ARG002 - Airflow calls it so
        """The prefix, the target and counts for OpenLineage; None: the task failed before its connections were read."""
        if self._lineage is None:
            return None
        from airflow_provider_kafka_s3.airflow.lineage import replay_lineage

        place, config, replayed = self._lineage
        return replay_lineage(place, config, self.target, self.written_by, replayed)

    def _request(self, context: Context) -> ReplayRequest:
        from airflow_provider_kafka_s3.replay.request import ReplayRequest

        return ReplayRequest(
            replay=self.replay_id or _id_of(context),
            target=self.target,
            at=self.at,
            since=None if self.since is None else parse_time("since=", self.since),
            until=None if self.until is None else parse_time("until=", self.until),
            offsets=None if self.offsets is None else {p: (a, b) for p, (a, b) in self.offsets.items()},
            partitions=None if self.partitions is None else tuple(self.partitions),
            key=self.key.encode() if isinstance(self.key, str) else self.key,
            generation=self.generation,
            without=cast("tuple[Missing, ...]", tuple(self.without)),  # the request refuses others
            same_topic=self.same_topic,
            keeps_partitions=self.keeps_partitions,
            records_per_second=self.records_per_second,
            written_by=cast("Writer | None", self.written_by),  # likewise
            folders=tuple(self.folders),
        )


def _id_of(context: Any) -> str:
    """An id for the task in this DAG run, the same for all its tries."""
    ti = context["ti"]
    name = "/".join((ti.dag_id, ti.task_id, ti.run_id, str(ti.map_index)))
    readable = re.sub(r"[^A-Za-z0-9._-]", "_", f"{ti.dag_id}-{ti.task_id}")[:64].lstrip("._-")
    return f"{readable or 'task'}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
