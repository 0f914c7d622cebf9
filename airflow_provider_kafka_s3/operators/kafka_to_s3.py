"""The operator that lands Kafka topics in S3 exactly once."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator  # noqa: TID253 - it is the base class
from airflow.providers.common.compat.openlineage.utils.spark import (  # noqa: TID253 - loaded by the base class
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.providers.common.compat.sdk import (  # noqa: TID253 - light, and loaded
    AirflowException,
    AirflowSkipException,
)

from airflow_provider_kafka_s3.airflow import assets, connections, links, parameters, run_window, xcom
from airflow_provider_kafka_s3.airflow.metrics import Stopwatch, TaskMetrics, task_metrics
from airflow_provider_kafka_s3.airflow.partitions import add_partitions, require_tables
from airflow_provider_kafka_s3.airflow.run_settings import RunSettings
from airflow_provider_kafka_s3.airflow.spark_submit_job import SparkSubmitJob, spark_settings
from airflow_provider_kafka_s3.airflow.task_errors import as_task_error, page_line, task_error
from airflow_provider_kafka_s3.airflow.worker_settings import warm_driver_seconds
from airflow_provider_kafka_s3.batch.request import Action
from airflow_provider_kafka_s3.config import (
    Compatibility,
    Content,
    Converter,
    Format,
    KeyNaming,
    Landed,
    LandedConverter,
    Limits,
    Naming,
    OnError,
    Partitioner,
    PartitionsIn,
    Rotation,
    Upload,
    Window,
    default_partitioner,
    needs_registry,
    parse_content,
    parse_converter,
    parse_format,
    parse_naming,
    parse_partitioner,
    parse_partitions_in,
    parse_source,
    parse_upload,
)
from airflow_provider_kafka_s3.config.values import Value, make_value
from airflow_provider_kafka_s3.documents import addresses
from airflow_provider_kafka_s3.exceptions import ConfigurationError, KafkaS3Error
from airflow_provider_kafka_s3.kafka.options import Isolation
from airflow_provider_kafka_s3.messages import count
from airflow_provider_kafka_s3.retry import RetryPolicy
from airflow_provider_kafka_s3.spark.spec import ConnectServer
from airflow_provider_kafka_s3.submit import spark_command
from airflow_provider_kafka_s3.submit.checks import require_spark
from airflow_provider_kafka_s3.submit.connect_job import ConnectJob, python_files, settings_of_server
from airflow_provider_kafka_s3.submit.topic_errors import topic_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_kafka_s3.airflow.run_context import RunContext
    from airflow_provider_kafka_s3.documents.plan import Plan
    from airflow_provider_kafka_s3.kafka_connect.reading import ConnectConfig
    from airflow_provider_kafka_s3.submit.job import SparkJob
    from airflow_provider_kafka_s3.submit.settings import SparkSettings
    from airflow_provider_kafka_s3.submit.target import SparkTarget

__all__ = ["KafkaToS3Operator"]

_DECIDED: Final = ("application", "application_args", "java_class", "conn_id")
"""Parameters of SparkSubmitOperator that this operator sets itself."""

_GROUPS: Final[Mapping[str, type[Value]]] = {
    "rotation": Rotation,
    "naming": Naming,
    "limits": Limits,
    "upload": Upload,
    "window": Window,
}
"""Parameters whose values have fields, with their classes."""


class KafkaToS3Operator(SparkSubmitOperator):
    """Land new records of Kafka topics as objects in an S3 bucket, exactly once.

    Each topic has a log of batches in the bucket, which also has the stored offsets: neither a consumer group nor
    Airflow's database is used. The first try of a run pins the offsets that the run covers; a retry, a cleared task or
    a concurrent run never lands a record twice. Without new records the task succeeds and starts no Spark job. Topics
    of one task share only the Spark job: if one fails, the others are committed, and then the task fails.

    All other keyword arguments (``packages``, ``jars``, ``conf``, ``executor_memory``, ``env_vars``, …) are those of
    ``SparkSubmitOperator``, except that ``env_vars`` are not templated. The driver has to run on the worker: a local
    master, or deploy mode ``client``.

    Args:
        topics: one topic, several separated by commas, or a list. (templated)
        bucket: name of an existing bucket. (templated)
        pipeline: name of the pipeline, which owns the stored offsets. A topic belongs to one pipeline per
            ``topics_dir``; with another name and another ``topics_dir``, landing starts again. (templated)
        format: format of the objects: :class:`~airflow_provider_kafka_s3.config.JsonLines`,
            :class:`~airflow_provider_kafka_s3.config.RawBytes`,
            :class:`~airflow_provider_kafka_s3.config.AvroContainer`,
            :class:`~airflow_provider_kafka_s3.config.Parquet`, :class:`~airflow_provider_kafka_s3.config.Csv`,
            :class:`~airflow_provider_kafka_s3.config.BlockGzip` or a class of your own
            (:class:`~airflow_provider_kafka_s3.config.CustomFormat`), a mapping such as
            ``{"kind": "json", "compression": "gzip"}``, or ``"json"``, ``"bytes"``, ``"avro"``, ``"parquet"``,
            ``"csv"`` or ``"block_gzip"``.
        offsets: records that a run lands. ``"incremental"``: all since the stored offsets. ``"data_interval"``: those
            with timestamps in the window of the DAG run (its partition or data interval), and all between them and the
            stored offsets; the DAG needs a timetable that makes partitions or data intervals. With either, a run may
            have an explicit window (``conf``, ``params``): see ``docs/windows.md``.
        starting_offsets: first offsets of a topic without stored offsets: ``"earliest"``, ``"latest"``,
            ``{partition: offset}`` or ``{topic: {partition: offset}}``. Required for ``"incremental"``, refused for
            ``"data_interval"``, where the topic begins with the first window.
        action: action of a run; overridden by ``{"kafka_s3": {"action": …}}`` in ``conf`` or ``params``. ``"land"``:
            land records that are not landed yet. ``"verify"``: read every object of the run back and compare it with
            its manifest; nothing is written. ``"restore"``: verify, and write missing objects again from Kafka or
            ``source``; an object with other content is never overwritten. (templated)
        value_converter: what the bytes of values are: :class:`~airflow_provider_kafka_s3.config.JsonConverter`,
            :class:`~airflow_provider_kafka_s3.config.AvroConverter`,
            :class:`~airflow_provider_kafka_s3.config.ProtobufConverter`,
            :class:`~airflow_provider_kafka_s3.config.JsonSchemaConverter`,
            :class:`~airflow_provider_kafka_s3.config.StringConverter`,
            :class:`~airflow_provider_kafka_s3.config.BytesConverter` or, with ``source``,
            :class:`~airflow_provider_kafka_s3.config.LandedConverter`, a mapping, or ``"json"``, ``"avro"``,
            ``"protobuf"``, ``"json_schema"``, ``"string"``, ``"bytes"`` or ``"landed"``; None: JSON for
            ``format="json"``, bytes for ``format="bytes"`` and a format of your own. JSON values need a schema with
            ``format="avro"``, ``"parquet"`` or ``"csv"``: ``JsonConverter(schema=…)``.
        key_converter: what the bytes of keys are, with a ``content`` that has keys.
        content: what of a record is written: :class:`~airflow_provider_kafka_s3.config.ValuesOnly`,
            :class:`~airflow_provider_kafka_s3.config.Envelope` (rows are whole records) or
            :class:`~airflow_provider_kafka_s3.config.SiblingObjects` (keys and headers in objects beside those of
            values), a mapping, or ``"values"``, ``"envelope"`` or ``"siblings"``.
        partitioner: determines the folder of a record: :class:`~airflow_provider_kafka_s3.config.ByPartition`,
            :class:`~airflow_provider_kafka_s3.config.ByField`, :class:`~airflow_provider_kafka_s3.config.ByKey`,
            :class:`~airflow_provider_kafka_s3.config.Daily`, :class:`~airflow_provider_kafka_s3.config.Hourly`,
            :class:`~airflow_provider_kafka_s3.config.TimePattern`, a class of your own
            (:class:`~airflow_provider_kafka_s3.config.CustomPartitioner`) or
            :class:`~airflow_provider_kafka_s3.config.Chain` of several, a mapping such as
            ``{"kind": "daily", "timezone": "Europe/Berlin"}``, or ``"partition"``, ``"key"``, ``"daily"`` or
            ``"hourly"``. None: ``"partition"``; with ``naming="deviantart"`` the day of the record in UTC,
            ``2026-01-31``.
        topics_dir: prefix of all keys. (templated)
        isolation: ``"read_committed"`` or ``"read_uncommitted"``.
        rotation: limits at which one object ends and the next begins:
            :class:`~airflow_provider_kafka_s3.config.Rotation` or a mapping of its fields.
        naming: how keys are put together: :class:`~airflow_provider_kafka_s3.config.Naming` or a mapping of its fields;
            or :class:`~airflow_provider_kafka_s3.config.DeviantArtNaming`, ``"deviantart"``.
        schema_compatibility: for a record whose schema is not that of the open object: ``"NONE"`` begins a new object;
            ``"BACKWARD"``, ``"FORWARD"`` and ``"FULL"`` project it to the schema of the object where that is possible.
            None: each schema has an open object of its own. See ``docs/formats.md``.
        limits: maximum size of a run, a batch and a Spark task: :class:`~airflow_provider_kafka_s3.config.Limits` or a
            mapping of its fields.
        upload: threads, memory and part size of uploads in a Spark task, and encryption, access control list, storage
            class and tags of objects: :class:`~airflow_provider_kafka_s3.config.Upload` or a mapping of its fields,
            such as ``{"threads": 4, "memory": 268435456, "encryption": "kms", "offset_tags": True}``.
        window: limits of windows of time: :class:`~airflow_provider_kafka_s3.config.Window` or a mapping of its fields.
        on_empty: if there is nothing to do for any topic, the task ends as a ``"success"``, or is skipped (``"skip"``).
        errors: for a record that cannot be written: ``"fail"`` names it, and nothing of its batch is landed;
            ``"dead_letter"`` writes it, with its key, its headers and the reason, to an object of the same batch in the
            folder ``_dead_letters`` of the topic.
        max_dead_letters: of a topic, in all batches that a run lands. A batch with more is an error, and nothing of it
            is landed. None: no limit.
        on_bad_timestamp: for records without a timestamp, or with one outside the years 1 to 9999, if the partitioner
            needs it: ``"fail"``, or the name of the partition for such records, which is the value in each of its
            folders. ``"__HIVE_DEFAULT_PARTITION__"`` is null for readers of the table.
        on_data_loss: for offsets that retention deleted before they were landed: ``"fail"``, or ``"skip"``, which
            records them as lost.
        on_future_timestamp: for a record whose timestamp is more than an hour ahead, which hides the end of windows of
            time, since Kafka returns the first record that is not older than a time: ``"fail"`` names the record; with
            ``"read_to_end"`` such a window is read to the current end, and later ones continue there.
        on_missing: for a committed object that a run finds missing: ``"fail"`` (restore it by ``action="restore"``) or
            ``"ignore"``.
        partitions_in: tables that get a partition for each new folder, after the commit:
            :class:`~airflow_provider_kafka_s3.config.GlueTable`,
            :class:`~airflow_provider_kafka_s3.config.HiveTable`, or a mapping such as
            ``{"kind": "glue", "table": "lake.{topic}"}``. A failure is a warning with the command that adds them. None:
            no table.
        adopt_wait: seconds to wait for the undecided batch of another run before this run executes it; 0 seconds if the
            other run's process on this host has ended, or Airflow's state of its task is not running.
        unsafe_single_writer: accept a store that ignores conditional writes. Concurrent runs may then lose records.
        request_retry: retries of requests to the store and the broker:
            :class:`~airflow_provider_kafka_s3.retry.RetryPolicy` or a mapping of its fields. (``retry_policy`` is
            Airflow's own, of the task.)
        source: read what another pipeline has landed in the same bucket, in place of Kafka:
            :class:`~airflow_provider_kafka_s3.config.Landed` or a mapping of its fields, such as
            ``{"pipeline": "orders-raw", "topics_dir": "raw"}``. ``kafka_conn_id`` is not used then. See
            ``docs/compaction.md``.
        kafka_options: more settings for Spark's Kafka source by their Java names, such as
            ``{"kafka.fetch.max.bytes": "1048576"}``. Put secrets into the connection.
        kafka_conn_id: connection of type ``kafka``; its extra has librdkafka's settings.
        aws_conn_id: connection of type ``aws``; None: boto3's own chain of credentials.
        registry_conn_id: connection of type ``http`` of a schema registry, for ``value_converter="avro"``,
            ``"protobuf"`` or ``"json_schema"``.
        spark_conn_id: connection of type ``spark``, or connection of a Spark Connect server (type ``spark_connect``, or
            a host ``sc://…``), which executes the job without a JVM on the worker.
        name: name of the Spark application. (templated)

    Returns:
        See :func:`airflow_provider_kafka_s3.airflow.xcom.to_xcom`.

    Raises:
        AirflowFailException: a retry cannot succeed; the message describes the remedy.
        AirflowException: a retry may succeed.
    """

    template_fields: Sequence[str] = (
        "topics",
        "bucket",
        "pipeline",
        "topics_dir",
        "action",
        *(f for f in SparkSubmitOperator.template_fields if f not in ("application", "application_args", "env_vars")),
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
        format: Format | Mapping[str, Any] | str,  # noqa: A002 - the name of the setting in Kafka Connect
        offsets: Literal["incremental", "data_interval"],
        starting_offsets: str | Mapping[Any, Any] | None = None,
        action: Action | str = "land",
        value_converter: Converter | Mapping[str, Any] | str | None = None,
        key_converter: Converter | Mapping[str, Any] | str = "bytes",
        content: Content | Mapping[str, Any] | str = "values",
        partitioner: Partitioner | Mapping[str, Any] | str | None = None,
        topics_dir: str = "topics",
        isolation: Isolation = "read_committed",
        rotation: Rotation | Mapping[str, Any] | None = None,
        naming: KeyNaming | Mapping[str, Any] | str | None = None,
        schema_compatibility: Compatibility | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        upload: Upload | Mapping[str, Any] | None = None,
        window: Window | Mapping[str, Any] | None = None,
        on_empty: Literal["success", "skip"] = "success",
        errors: OnError = "fail",
        max_dead_letters: int | None = None,
        on_bad_timestamp: str = "fail",
        on_data_loss: Literal["fail", "skip"] = "fail",
        on_future_timestamp: Literal["fail", "read_to_end"] = "fail",
        on_missing: Literal["fail", "ignore"] = "fail",
        partitions_in: PartitionsIn | Mapping[str, Any] | None = None,
        adopt_wait: float = 120.0,
        unsafe_single_writer: bool = False,
        request_retry: RetryPolicy | Mapping[str, Any] | None = None,
        source: Landed | Mapping[str, Any] | None = None,
        kafka_options: Mapping[str, str] | None = None,
        kafka_conn_id: str = "kafka_default",
        aws_conn_id: str | None = "aws_default",
        registry_conn_id: str | None = None,
        spark_conn_id: str = "spark_default",
        name: str = "kafka-to-s3",
        **kwargs: Any,
    ) -> None:
        parameters.require_known(type(self), kwargs, _GROUPS)
        for parameter in _DECIDED:
            if parameter in kwargs:
                hint = "use spark_conn_id" if parameter == "conn_id" else "remove it"
                raise ConfigurationError(f"{parameter} is set by {type(self).__name__} itself; {hint}")
        super().__init__(application="", application_args=None, conn_id=spark_conn_id, name=name, **kwargs)
        # After a crash a run continues from the bucket. Airflow would reattach to the Spark job and skip the commit.
        self.durable = False
        self.spark_conn_id = spark_conn_id
        self.aws_conn_id = aws_conn_id
        self.topics = topics
        self.bucket = bucket
        self.pipeline = pipeline
        self.topics_dir = topics_dir
        self.format = parse_format(format)
        self.value_converter = None if value_converter is None else parse_converter(value_converter)
        self.key_converter = parse_converter(key_converter, "key_converter")
        self.content = parse_content(content)
        self.registry_conn_id = registry_conn_id
        self.offsets = offsets
        self.starting_offsets = starting_offsets
        self.action = action
        self.isolation = isolation
        self.rotation = make_value("rotation", (Rotation,), rotation)
        self.naming = parse_naming(naming)
        self.partitioner = default_partitioner(self.naming) if partitioner is None else parse_partitioner(partitioner)
        self.schema_compatibility = schema_compatibility
        self.limits = make_value("limits", (Limits,), limits)
        self.upload = parse_upload(upload)
        self.window = make_value("window", (Window,), window)
        self.on_empty = on_empty
        self.errors = errors
        self.max_dead_letters = max_dead_letters
        self.on_bad_timestamp = on_bad_timestamp
        self.on_data_loss = on_data_loss
        self.on_future_timestamp = on_future_timestamp
        self.on_missing = on_missing
        self.partitions_in = parse_partitions_in(partitions_in)
        self.adopt_wait = adopt_wait
        self.unsafe_single_writer = unsafe_single_writer
        self.request_retry = make_value("request_retry", (RetryPolicy,), request_retry)
        self.source = parse_source(source)
        self.kafka_options = parameters.parse_options(kafka_options)
        self.kafka_conn_id = kafka_conn_id
        # URLs of the buttons of this try, see links.push.
        self.link_urls: dict[str, str] = {}
        # For OpenLineage: of this try, and its XCom.
        self._lineage: tuple[RunContext, dict[str, Any] | None] | None = None
        self._job: SparkJob | None = None
        self._killed = False
        self._warm_seconds = 0
        self._validate()

    @classmethod
    def from_connect_config(
        cls, connector: ConnectConfig, *, worker: ConnectConfig | None = None, **parameters: Any
    ) -> Self:
        """Make the operator from the configuration of a connector: Confluent's or DeviantArt's S3 sink.

        Each setting becomes a parameter, has no meaning here, is a ``UserWarning``, as transforms are, or is an error:
        see ``docs/from-kafka-connect.md``. Secrets are not used; the connections have them. ``kafka-s3 convert`` prints
        the operator, and what became of each setting.

        Args:
            connector: the settings as a mapping; or ``{"name": …, "config": {…}}``, as Connect's REST interface has
                them; or the text of a JSON or Java properties file; or the ``pathlib.Path`` of one.
            worker: configuration of the worker, in one of these forms. Its converters apply to a connector without its
                own.
            parameters: of the operator. They replace the settings they belong to, also refused ones. By default, the
                name of the connector is ``pipeline`` and ``task_id``, ``offsets`` is ``"incremental"``, and
                ``registry_conn_id`` is ``"registry_default"`` if values have schemas of a registry.

        Raises:
            ConfigurationError: it is another connector, or settings are unknown, refused, missing or wrong; the message
                names all of them.
        """
        from airflow_provider_kafka_s3.kafka_connect.convert import convert

        converted = convert(connector, worker=worker, **parameters)
        if left_out := [f"  {note.name}: {note.text}" for note in converted.notes if note.use == "warning"]:
            warnings.warn("settings of the connector are not converted:\n" + "\n".join(left_out), stacklevel=2)
        return cls(**converted.parameters)

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Check the parameters as far as possible without connections; templates are checked when they are rendered."""
        settings = self._run_settings()
        converters = (self.value_converter, self.key_converter)
        if any(map(needs_registry, converters)) != (self.registry_conn_id is not None):
            raise ConfigurationError(
                "a converter such as 'avro' and registry_conn_id go together, as the registry has the "
                "schemas. Give both or neither"
            )
        if self.max_dead_letters is not None and self.errors == "fail":
            raise ConfigurationError(
                "max_dead_letters has no effect with errors='fail', which lands no dead letters. Remove it, or use "
                "errors='dead_letter'"
            )
        parameters.require_text("on_bad_timestamp", self.on_bad_timestamp)
        parameters.require_plain_env(self.env_vars)
        parameters.require_client_mode(self._deploy_mode, self.conf)
        if self.starting_offsets is None and self.offsets == "incremental":
            raise ConfigurationError(
                "starting_offsets is required with offsets='incremental': a topic without stored offsets begins at "
                "'earliest' (land all existing records) or 'latest' (land only new records)"
            )
        if self.starting_offsets is not None and self.offsets == "data_interval":
            raise ConfigurationError(
                "starting_offsets has no effect with offsets='data_interval': a topic begins with the first window. "
                "Remove it"
            )
        starting = parameters.parse_starting_offsets(self.starting_offsets)
        if not parameters.has_template(self.topics):
            for topic in (topics := parameters.parse_topics(self.topics)):
                parameters.starting_of(starting, topic, topics)
            if self.partitions_in is not None:
                require_tables(self.partitions_in, topics)
        if not parameters.has_template(self.pipeline):
            addresses.validate_pipeline(self.pipeline)
        if not parameters.has_template(self.bucket):
            parameters.require_bucket(self.bucket)
        known = not parameters.has_template(self.topics_dir)
        topics_dir = parameters.require_topics_dir(self.topics_dir) if known else "topics"
        if isinstance(self.value_converter, LandedConverter) and self.source is None:
            raise ConfigurationError(
                "value_converter='landed' has the values of another pipeline's files, and this one reads Kafka. Give "
                "source=Landed(…), or the converter of the values in Kafka"
            )
        if self.source is not None:
            addresses.validate_pipeline(self.source.pipeline)
            if known:
                parameters.require_other_prefix(self.source, topics_dir)
        layout = parameters.require_layout(settings.layout(topics_dir))
        if self.partitions_in is not None:
            from airflow_provider_kafka_s3.tables.partitions.sync import require_named_folders

            require_named_folders(layout)
        # A request checks itself. Run, window and topic are placeholders; they are known when the task runs.
        window = (0, 1) if self.offsets == "data_interval" else None
        action = "land" if parameters.has_template(self.action) else run_window.parse_action("", self.action)
        settings.request(layout, "earliest", run="", window=window, action=action, attempt="")

    def _run_settings(self) -> RunSettings:
        return RunSettings(**{name: getattr(self, name) for name in RunSettings.__struct_fields__})

    # -- the task -----------------------------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Land the topics; see the class."""
        with task_metrics(context, self.pipeline) as metrics:
            return self._execute(context, metrics)

    def _execute(self, context: Context, metrics: TaskMetrics) -> dict[str, Any]:
        from airflow_provider_kafka_s3.airflow.run_context import prepare_run
        from airflow_provider_kafka_s3.submit.topic_runs import land_topics

        self.link_urls = {}
        with as_task_error(self.log, page=lambda: page_line(self, ())):
            parameters.require_conf(self.conf)
            spark = spark_settings(self)
            target = connections.spark_target(self.spark_conn_id)
            self._warm_seconds = 0 if target.connect_url is None else warm_driver_seconds()
            spark_command.require_client_deploy_mode(
                spark.deploy_mode, target.deploy_mode, spark.conf.get("spark.submit.deployMode")
            )
            resolved = run_window.resolve_window(
                context,
                offsets=self.offsets,
                action=self.action,
                partitioner=self.partitioner,
                settings=self.window,
            )
            self.log.info("%s", resolved)
            if resolved.action == "land":  # other actions need no Spark
                require_spark(spark, target)
            run = prepare_run(self._run_settings(), context, resolved)
            if not run.runs:
                return self._announce(context, run, xcom.to_xcom({}, resolved), resolved)
            self._lineage = run, None
        stopwatch = Stopwatch("plan")

        def execute_plans(plans: Mapping[str, Plan]) -> Mapping[str, Exception]:
            stopwatch.turn("spark")
            try:
                return self._execute_plans(context, spark, target, run, plans)
            finally:
                stopwatch.turn("commit")

        landed = land_topics(run.runs, execute_plans)
        stopwatch.turn("")
        returned = xcom.to_xcom(landed.results, resolved)
        metrics.landed(returned)
        metrics.timings(stopwatch)
        metrics.gauges(run, landed.results)
        for topic, result in landed.results.items():
            self.log.info("topic %s: %s", topic, xcom.summary([result]))
        if resolved.action == "land":
            add_partitions(run, landed.results)
        links.push(self.link_urls, context, marker_url=links.marker_url(run, unsure=bool(landed.errors)))
        if landed.errors:
            links.push(self.link_urls, context, manifest_url=links.manifest_url(run, returned))
            message, terminal, cause = xcom.failure(landed.errors, landed.results)
            message += page_line(self, [*landed.errors])
            error = task_error(self.log, message, terminal=terminal, cause=cause)
            raise error from error.__cause__
        self._lineage = run, returned
        links.push(self.link_urls, context, manifest_url=links.manifest_url(run, returned))
        self._announce(context, run, returned, resolved)
        if len(landed.results) > 1:
            self.log.info("%s: %s", count(len(landed.results), "topic"), xcom.summary(landed.results.values()))
        return returned

    def _announce(
        self, context: Context, run: RunContext, returned: dict[str, Any], resolved: run_window.RunWindow
    ) -> dict[str, Any]:
        """Attach the result to the events of the task's assets; returns the result.

        Raises:
            AirflowSkipException: there was nothing to do, with ``on_empty="skip"``.
        """
        if returned["status"] == "empty" and self.on_empty == "skip":
            raise AirflowSkipException(f"nothing to do for {self.topics}: {resolved}")
        assets.announce(context, self.outlets, assets.event_extra(run, returned))
        return returned

    def _execute_plans(
        self, context: Context, spark: SparkSettings, target: SparkTarget, run: RunContext, plans: Mapping[str, Plan]
    ) -> Mapping[str, Exception]:
        """Execute one plan per topic in one Spark job; returns the errors per topic.

        Raises:
            AirflowException: the task was killed.
        """
        if self._killed:
            raise AirflowException("the task was killed; no Spark job was submitted")
        # Before Spark starts: a registry that does not answer would be noticed by its tasks.
        failed = run.registry_errors(plans)
        plans = {topic: plan for topic, plan in plans.items() if topic not in failed}
        if not plans:
            return failed
        self.log.info("submitting %s", ", ".join(f"batch {p.batch} of topic {t}" for t, p in sorted(plans.items())))
        self._job = self._make_job(context, spark, target)
        server = None
        if target.connect_url is not None:
            server = ConnectServer(url=target.connect_url, conf=dict(spark.conf), py_files=python_files(spark))
        try:
            with tempfile.TemporaryDirectory(prefix="kafka-s3-") as folder:
                outcome = self._job.run(run.job(plans, result_path=str(Path(folder, "result.json")), connect=server))
        except KafkaS3Error as e:
            return failed | dict.fromkeys(plans, e)
        if self._killed and outcome.output:
            raise AirflowException("the task was killed")
        links.push(self.link_urls, context, spark_url=links.spark_url(target.history_url, outcome.application_id))
        try:
            run.renew(connections.s3_access(self.aws_conn_id))
        except KafkaS3Error as e:
            # If the old credentials have expired, each topic fails with its own error.
            self.log.warning("continuing with the credentials from before the job: %s", e)
        return failed | topic_errors(outcome, plans)

    def _make_job(self, context: Context, spark: SparkSettings, target: SparkTarget) -> SparkJob:
        if target.connect_url is not None:
            if ignored := settings_of_server(spark):
                self.log.warning("the Spark Connect server was started without: %s", ", ".join(ignored))
            return ConnectJob(spark.env, self.log, warm_seconds=self._warm_seconds)
        conf = dict(spark.conf)
        if self._openlineage_inject_parent_job_info:
            conf = inject_parent_job_information_into_spark_properties(conf, context)
        if self._openlineage_inject_transport_info:
            conf = inject_transport_information_into_spark_properties(conf, context)
        return SparkSubmitJob(dataclasses.replace(spark, conf=conf), target, self.log)

    def on_kill(self) -> None:
        """Stop the driver. Committed batches stay; the next try completes decided ones."""
        self._killed = True
        if self._job is not None:
            self._job.kill()

    def get_openlineage_facets_on_complete(self, task_instance: object) -> Any:  # noqa: ARG002 - Airflow calls it so
        """Topics, prefixes and counts for OpenLineage; None: the task failed before its connections were read."""
        if self._lineage is None:
            return None
        from airflow_provider_kafka_s3.airflow.lineage import run_lineage

        return run_lineage(*self._lineage)
