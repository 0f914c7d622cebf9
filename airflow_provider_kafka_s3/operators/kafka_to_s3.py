"""The operator: land Kafka topics in S3, exactly once, in as few Spark jobs as it takes, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from airflow.providers.common.compat.sdk import AirflowSkipException  # noqa: TID253 - light, and loaded

from airflow_provider_kafka_s3.airflow import assets, connections, links, parameters, run_window, xcom
from airflow_provider_kafka_s3.airflow.lineage import RunLineage
from airflow_provider_kafka_s3.airflow.spark_job import PlanSubmitter
from airflow_provider_kafka_s3.airflow.spark_versions import require_versions
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, task_error
from airflow_provider_kafka_s3.config import MIB, Format, Layout, Partitioner, Rotation
from airflow_provider_kafka_s3.exceptions import ConfigurationError
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.layout import keys
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.submit import spark_command

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext
    from airflow_provider_kafka_s3.batch.request import RunRequest, Starting
    from airflow_provider_kafka_s3.spark.spec import UploadSettings

__all__ = ["KafkaToS3Operator"]


class KafkaToS3Operator(PlanSubmitter):
    """Land what is new in Kafka topics as objects in an S3 bucket, exactly once.

    Each topic has a log of batches in the bucket, which also holds the stored offsets: neither a consumer group nor
    Airflow's database takes part. A run pins which offsets it has to cover when it is first tried; a retry, a cleared
    task or a run at the same time never lands a record twice. Nothing new is success, without starting Spark. Topics of
    one task share one Spark job and nothing else: if one fails, the others are committed, and then the task fails.

    All other keyword arguments (``packages``, ``jars``, ``conf``, ``executor_memory``, ``env_vars``, …) are those of
    ``SparkSubmitOperator``, except that ``env_vars`` are not templated. The driver has to run on the worker: a local
    master, or deploy mode ``client``.

    Args:
        topics: one topic, several separated by commas, or a list. (templated)
        bucket: it must exist. (templated)
        pipeline: name of this way from Kafka to S3. It owns the stored offsets: another name starts afresh, and a topic
            belongs to one pipeline per ``topics_dir``. (templated)
        format: ``"json"`` (JSON lines), ``"bytes"``, or settings such as ``{"kind": "json", "compression": "gzip"}``: a
            :class:`~airflow_provider_kafka_s3.config.Format` or a mapping of its fields.
        offsets: which records a run lands. ``"incremental"``: all since the stored offsets. ``"data_interval"``: those
            with timestamps in the window of the DAG run (its partition or data interval), and whatever lies between
            them and the stored offsets; the DAG needs a timetable that makes either. A run may name its window itself
            (``conf``, ``params``), whichever of the two this is: see ``docs/run_window.md``.
        mode: what a run does; ``conf`` and ``params`` with ``{"mode": …}`` win over it. ``"resume"``: land what is not
            landed yet. ``"verify"``: read every object of the run back and compare it with what was committed; nothing
            is written. ``"restore"``: verify, and write objects that are gone again from Kafka; an object with other
            content is never overwritten.
        on_empty: nothing to do for any topic is a ``"success"``, or makes the task ``"skip"``.
        allow_open_window: whether a window may end in the future: it is read to the current end then, and not to its
            own. Otherwise it is an error.
        partition_length: how long a partition of a partitioned DAG is (Airflow 3.2 and later), if not as long as one of
            the ``partitioner``. Whole days are days of the calendar in the partitioner's time zone.
        starting_offsets: where a topic begins that has no stored offsets yet: ``"earliest"``, ``"latest"``,
            ``{partition: offset}`` or ``{topic: {partition: offset}}``. Required for ``"incremental"``, refused for
            ``"data_interval"``, whose windows say where to begin.
        partitioner: ``"default"``, ``"daily"``, ``"hourly"``, or settings: a
            :class:`~airflow_provider_kafka_s3.config.Partitioner` or a mapping of its fields. Times are those of the
            records.
        flush_size: records of a Kafka partition after which its open objects are closed; None: no limit.
        max_bytes: uncompressed bytes after which an object is closed.
        max_open_objects: objects that one Spark task has open at most; a record that needs one more closes the one
            that was opened first. Each takes memory beside the buffers of ``upload``.
        on_bad_timestamp: a record whose timestamp is no time (none, or outside the years 1 to 9999) for a partitioner
            that looks at it: ``"fail"``, or the name of the partition for such records, which stands in each of its
            folders. ``"__HIVE_DEFAULT_PARTITION__"`` is null for readers of the table.
        topics_dir: prefix of all keys. (templated)
        directory_delim: between the folders of a key.
        file_delim: between topic, partition and offset in a file name.
        offset_pad_width: digits of the offset in a file name.
        part_size: bytes of one part of an upload.
        upload: how a Spark task uploads, such as ``{"threads": 4, "memory": 268435456, "spill_dir": "/mnt/fast"}``: a
            :class:`~airflow_provider_kafka_s3.spark.spec.UploadSettings` or a mapping of its fields.
        isolation: ``"read_committed"`` or ``"read_uncommitted"``.
        max_records_per_run: offsets of a run at most, shared evenly by the partitions; ``"incremental"`` only.
        max_records_per_batch: offsets of one batch at most; a run may need several.
        max_slice_records: offsets that one Spark task reads at most.
        on_data_loss: offsets that retention deleted before they were landed: ``"fail"``, or ``"skip"``, which records
            the gap.
        on_future_timestamp: a record whose timestamp is more than an hour ahead hides where windows of time end, since
            Kafka looks a time up as the first record that is not older: ``"fail"`` names the record; with
            ``"read_to_end"`` such a window is read to the current end, and later ones go on there.
        on_missing: a resumed run finds that an object that was committed is gone: ``"fail"`` (restore it by
            ``mode="restore"``) or ``"ignore"``.
        adopt_wait: seconds to wait for another run's batch that this run needs, too, before doing its work again;
            0 seconds if that run's process on this host has ended, or Airflow has its task as not running.
        unsafe_single_writer: accept a store that ignores conditional writes. Two runs at once may then lose records.
        request_retry: how requests to the store and the broker are repeated:
            :class:`~airflow_provider_kafka_s3.retry.RetryPolicy` or a mapping of its fields. (``retry_policy`` is
            Airflow's own, of the task.)
        kafka_options: more settings for Spark's Kafka source by their Java names, such as
            ``{"kafka.fetch.max.bytes": "1048576"}``. Secrets belong into the connection.
        kafka_conn_id: connection of type ``kafka``; its extra holds librdkafka's settings.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
        spark_conn_id: connection of type ``spark``, or the one of a Spark Connect server (type ``spark_connect``, or a
            host ``sc://…``), which executes the job without a JVM on the worker.
        name: of the Spark application. (templated)

    Returns:
        See :func:`airflow_provider_kafka_s3.airflow.xcom.to_xcom`.

    Raises:
        AirflowFailException: trying again cannot help; the message says what to do.
        AirflowException: trying again may help.
    """

    template_fields: Sequence[str] = (
        "topics",
        "bucket",
        "pipeline",
        "topics_dir",
        *(f for f in PlanSubmitter.template_fields if f not in ("application", "application_args", "env_vars")),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"topics": "json", "conf": "json"}
    operator_extra_links = (links.ManifestLink(), links.MarkerLink(), links.SparkHistoryLink())
    ui_color = "#fbe8d3"

    def __init__(
        self,
        *,
        topics: str | Sequence[str],
        bucket: str,
        pipeline: str,
        format: Format | Mapping[str, Any] | str,  # noqa: A002 - the name that Kafka Connect's users know
        offsets: Literal["incremental", "data_interval"],
        starting_offsets: str | Mapping[Any, Any] | None = None,
        mode: run_window.Mode = "resume",
        on_empty: Literal["success", "skip"] = "success",
        allow_open_window: bool = False,
        partition_length: timedelta | None = None,
        partitioner: Partitioner | Mapping[str, Any] | str = "default",
        flush_size: int | None = None,
        max_bytes: int = 1024 * MIB,
        max_open_objects: int = 400,
        on_bad_timestamp: str = "fail",
        topics_dir: str = "topics",
        directory_delim: str = "/",
        file_delim: str = "+",
        offset_pad_width: int = 10,
        part_size: int = 8 * MIB,
        upload: UploadSettings | Mapping[str, Any] | None = None,
        isolation: Isolation = "read_committed",
        max_records_per_run: int | None = None,
        max_records_per_batch: int | None = 100_000_000,
        max_slice_records: int = 5_000_000,
        on_data_loss: Literal["fail", "skip"] = "fail",
        on_future_timestamp: Literal["fail", "read_to_end"] = "fail",
        on_missing: Literal["fail", "ignore"] = "fail",
        adopt_wait: float = 120.0,
        unsafe_single_writer: bool = False,
        request_retry: RetryPolicy | Mapping[str, Any] | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_conn_id: str = "kafka_default",
        aws_conn_id: str | None = "aws_default",
        spark_conn_id: str = "spark_default",
        name: str = "kafka-to-s3",
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs)
        super().__init__(name=name, spark_conn_id=spark_conn_id, aws_conn_id=aws_conn_id, **kwargs)
        self.topics = topics
        self.bucket = bucket
        self.pipeline = pipeline
        self.topics_dir = topics_dir
        self.format = parameters.parse_format(format)
        self.partitioner = parameters.parse_partitioner(partitioner)
        self.offsets = offsets
        self.starting_offsets = starting_offsets
        self.mode = mode
        self.on_empty = on_empty
        self.allow_open_window = allow_open_window
        self.partition_length = partition_length
        self.flush_size = flush_size
        self.max_bytes = max_bytes
        self.max_open_objects = max_open_objects
        self.on_bad_timestamp = on_bad_timestamp
        self.directory_delim = directory_delim
        self.file_delim = file_delim
        self.offset_pad_width = offset_pad_width
        self.part_size = part_size
        self.upload = parameters.parse_upload(upload)
        self.isolation = isolation
        self.max_records_per_run = max_records_per_run
        self.max_records_per_batch = max_records_per_batch
        self.max_slice_records = max_slice_records
        self.on_data_loss = on_data_loss
        self.on_future_timestamp = on_future_timestamp
        self.on_missing = on_missing
        self.adopt_wait = adopt_wait
        self.unsafe_single_writer = unsafe_single_writer
        self.request_retry = parameters.parse_retry_policy(request_retry)
        self.kafka_options = parameters.parse_options(kafka_options)
        self.kafka_conn_id = kafka_conn_id
        self._lineage: RunLineage | None = None
        self._validate()

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Check what can be checked without connections; templates are checked when they are rendered."""
        parameters.require_types(vars(self))
        parameters.require_choice("offsets", self.offsets, ("incremental", "data_interval"))
        parameters.require_choice("isolation", self.isolation, get_args(Isolation))
        parameters.require_choice("on_data_loss", self.on_data_loss, ("fail", "skip"))
        parameters.require_choice("on_future_timestamp", self.on_future_timestamp, ("fail", "read_to_end"))
        parameters.require_choice("on_missing", self.on_missing, ("fail", "ignore"))
        parameters.require_choice("mode", self.mode, get_args(run_window.Mode))
        parameters.require_choice("on_empty", self.on_empty, ("success", "skip"))
        run_window.require_length(self.partition_length)
        parameters.require_text("on_bad_timestamp", self.on_bad_timestamp)
        parameters.require_plain_env(self.env_vars)
        parameters.require_client_mode(self._deploy_mode, self.conf)
        if self.adopt_wait < 0:
            raise ConfigurationError(f"adopt_wait={self.adopt_wait} must be 0 or more seconds")
        if self.starting_offsets is None and self.offsets == "incremental":
            raise ConfigurationError(
                "starting_offsets is required with offsets='incremental': say where a topic without stored offsets "
                "begins, 'earliest' (land what is there) or 'latest' (only what comes from now on)"
            )
        if self.starting_offsets is not None and self.offsets == "data_interval":
            raise ConfigurationError(
                "starting_offsets has no effect with offsets='data_interval': the window of a run says where it "
                "begins. Remove it"
            )
        starting = parameters.parse_starting_offsets(self.starting_offsets)
        if not parameters.has_template(self.topics):
            for topic in (topics := parameters.parse_topics(self.topics)):
                parameters.starting_of(starting, topic, topics)
        if not parameters.has_template(self.pipeline):
            keys.validate_pipeline(self.pipeline)
        if not parameters.has_template(self.bucket):
            parameters.require_bucket(self.bucket)
        known = not parameters.has_template(self.topics_dir)
        topics_dir = parameters.require_topics_dir(self.topics_dir) if known else "topics"
        layout = parameters.require_layout(self.layout(topics_dir))
        # It checks itself; which run, window and topic it will be about is told by the task.
        anything = (0, 1) if self.offsets == "data_interval" else None
        self.request(layout, "earliest", run="", window=anything, mode=self.mode, attempt="")

    def layout(self, topics_dir: str, zone_database: str = "") -> Layout:
        """Of the objects; ``topics_dir`` and the release of the time zone database are known when the task runs."""
        return Layout(
            topics_dir=topics_dir,
            format=self.format,
            partitioner=self.partitioner,
            rotation=Rotation(
                flush_size=self.flush_size, max_bytes=self.max_bytes, max_open_objects=self.max_open_objects
            ),
            directory_delim=self.directory_delim,
            file_delim=self.file_delim,
            offset_pad_width=self.offset_pad_width,
            part_size=self.part_size,
            on_bad_timestamp=self.on_bad_timestamp,
            zone_database=zone_database,
        )

    # -- the task -----------------------------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Land the topics; see the class."""
        from airflow_provider_kafka_s3.airflow.run_context import prepare_run
        from airflow_provider_kafka_s3.submit.topic_runs import land

        self.link_urls = {}
        with as_task_error(self.log):
            parameters.require_conf(self.conf)
            target = connections.spark_target(self.spark_conn_id)
            spark_command.require_client_mode(
                self._deploy_mode, target.deploy_mode, (self.conf or {}).get("spark.submit.deployMode")
            )
            resolved = run_window.resolve_window(
                context,
                offsets=self.offsets,
                mode=self.mode,
                partitioner=self.partitioner,
                partition_length=self.partition_length,
                allow_open_window=self.allow_open_window,
            )
            self.log.info("%s", resolved)
            if resolved.mode == "resume":  # the other modes need no Spark
                require_versions(self, target)
                self.require_jars(target)
            work = prepare_run(self, context, resolved)
            if not work.runs:
                return self._announced(context, work, xcom.to_xcom({}, resolved), resolved)
            self._lineage = RunLineage.of(work)
            links.push(self, context, marker_url=links.marker_url(work))
        landed = land(work.runs, lambda plans: self.submit_plans(context, target, work, plans))
        for topic, result in landed.results.items():
            self.log.info("topic %s: %s", topic, xcom.said([result]))
        if landed.errors:
            message, terminal, cause = xcom.failure(landed.errors, landed.results)
            raise task_error(self.log, message, terminal=terminal) from cause
        returned = xcom.to_xcom(landed.results, resolved)
        self._lineage = RunLineage.of(work, returned)
        links.push(self, context, manifest_url=links.manifest_url(work, returned))
        self._announced(context, work, returned, resolved)
        if len(landed.results) > 1:
            self.log.info("%s: %s", count(len(landed.results), "topic"), xcom.said(landed.results.values()))
        return returned

    def _announced(
        self, context: Context, work: RunContext, returned: dict[str, Any], resolved: run_window.Resolved
    ) -> dict[str, Any]:
        """What the task returns, which its assets are told of; a task without work may have to be skipped."""
        if returned["status"] == "empty" and self.on_empty == "skip":
            raise AirflowSkipException(f"nothing to do for {self.topics}: {resolved}")
        assets.announce(context, self.outlets, assets.event_extra(work, returned))
        return returned

    def get_openlineage_facets_on_complete(self, task_instance: object) -> Any:  # noqa: ARG002 - Airflow calls it so
        """Topics in, prefixes out, and how much; None: the task did not come as far as knowing its connections."""
        return self._lineage.to_openlineage() if self._lineage is not None else None

    def request(
        self,
        layout: Layout,
        starting: Starting | None,
        *,
        run: str,
        window: tuple[int, int] | run_window.OffsetRanges | None,
        mode: run_window.Mode,
        attempt: str,
    ) -> RunRequest:
        """What the engine is asked to do for one topic; wrong parameters are found by making it."""
        from airflow_provider_kafka_s3.batch.request import RunRequest

        # A window is landed whole: a cap on it would leave a gap that no later run looks for.
        most = self.max_records_per_run if window is None or self.offsets == "data_interval" else None
        said = {
            "offsets": self.offsets,
            "window": window,
            "starting_offsets": self.starting_offsets,
            "isolation": self.isolation,
            "max_records_per_run": most,
        }
        return RunRequest(
            run=run,
            mode="incremental" if window is None else "data_interval",
            purpose=mode,
            layout=layout,
            starting=starting,
            window=window,
            isolation=self.isolation,
            max_records_per_run=most,
            max_records_per_batch=self.max_records_per_batch,
            max_slice_records=self.max_slice_records,
            on_data_loss=self.on_data_loss,
            on_future_timestamp=self.on_future_timestamp,
            on_missing=self.on_missing,
            adopt_wait=self.adopt_wait,
            unsafe_single_writer=self.unsafe_single_writer,
            attempt=attempt,
            params={name: str(value) for name, value in said.items() if value is not None},
        )
