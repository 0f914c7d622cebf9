"""DAGs and readers as a user writes them: ``make lint`` checks their types against the package's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import DAG  # noqa: TID253 - a DAG file imports Airflow

from airflow_provider_kafka_s3 import (
    AvroContainer,
    AvroConverter,
    ByField,
    ByPartition,
    BytesConverter,
    Chain,
    Csv,
    CustomFormat,
    CustomPartitioner,
    Daily,
    FieldTime,
    Hourly,
    JsonConverter,
    JsonLines,
    JsonSchemaConverter,
    KafkaLagSensor,
    KafkaToS3Operator,
    KafkaWindowClosedSensor,
    Limits,
    Naming,
    Parquet,
    ProtobufConverter,
    RawBytes,
    RetryPolicy,
    Rotation,
    TimePattern,
    Upload,
    Window,
)
from airflow_provider_kafka_s3.reading import Snapshot, arrow_batches, arrow_dataset, snapshots

with DAG("values", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    KafkaToS3Operator(
        task_id="by_the_day",
        topics=["orders", "refunds"],
        bucket="lake",
        pipeline="orders",
        format=JsonLines(compression="gzip", on_null="ignore"),
        value_converter=JsonConverter(),
        offsets="incremental",
        starting_offsets={"orders": {0: 100}, "refunds": {0: 0}},
        action="land",
        partitioner=Daily(timezone="Europe/Berlin"),
        rotation=Rotation(flush_size=10_000),
        naming=Naming(offset_pad_width=12),
        limits=Limits(records_per_run=10**6, records_per_batch=None),
        upload=Upload(part_size=16 * 1024 * 1024, spill_dir="/mnt/fast"),
        on_bad_timestamp="__HIVE_DEFAULT_PARTITION__",
        on_empty="skip",
        errors="dead_letter",
        max_dead_letters=1_000,
        request_retry=RetryPolicy(max_retries=5),
        kafka_options={"kafka.fetch.max.bytes": "1048576"},
        aws_conn_id=None,
        packages="org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    )
    complete = KafkaWindowClosedSensor(
        task_id="complete",
        topics="clicks",
        grace=timedelta(minutes=5),
        partitioner=Hourly(),
        window=Window(partition_length=timedelta(hours=6)),
        deferrable=True,
    )
    enough = KafkaLagSensor(task_id="enough", topics="clicks", bucket="lake", pipeline="clicks", min_records=1_000)
    monthly = KafkaToS3Operator(
        task_id="by_the_month",
        topics="clicks",
        bucket="lake",
        pipeline="clicks",
        format=RawBytes(separator="", extension=".protobuf"),
        value_converter=BytesConverter(),
        offsets="data_interval",
        partitioner=TimePattern(path_format="'year'=YYYY/'month'=MM", duration_ms=86_400_000),
        window=Window(allow_open=True),
    )
    [complete, enough] >> monthly

    KafkaToS3Operator(
        task_id="by_country_and_event_time",
        topics="clicks",
        bucket="lake",
        pipeline="clicks-by-country",
        format=JsonLines(),
        offsets="incremental",
        starting_offsets="earliest",
        partitioner=Chain(
            partitioners=(
                ByField(names=("user.country",), missing="null"),
                Hourly(timestamp_from=FieldTime(name="event.time", unit="s"), timezone="Europe/Berlin"),
            )
        ),
        naming=Naming(lowercase_paths=True, file_name_template="{{topic}}-{{partition}}-{{start_offset:padding=true}}"),
    )

with DAG("own_classes", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    KafkaToS3Operator(
        task_id="tenants",
        topics="orders",
        bucket="lake",
        pipeline="tenants",
        format=CustomFormat(import_path="mycompany.boxes:Boxes", extension=".box", compression="zstd"),
        value_converter=JsonConverter(),
        offsets="incremental",
        starting_offsets="earliest",
        partitioner=Chain(
            partitioners=(CustomPartitioner(import_path="mycompany.tenants:Tenants", options={"n": 1}), Hourly())
        ),
        py_files="mycompany.zip",
    )

with DAG("schemas_of_a_registry", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    KafkaToS3Operator(
        task_id="columns",
        topics="trips",
        bucket="lake",
        pipeline="trips",
        format=Parquet(compression="snappy", row_group_bytes=8 * 1024 * 1024),
        value_converter=AvroConverter(),
        registry_conn_id="registry_default",
        offsets="incremental",
        starting_offsets="earliest",
        rotation=Rotation(max_open_objects=50),
    )
    KafkaToS3Operator(
        task_id="messages",
        topics="rides",
        bucket="lake",
        pipeline="rides",
        format=Parquet(),
        value_converter=ProtobufConverter(unsigned="decimal", timestamps="record"),
        registry_conn_id="registry_default",
        offsets="incremental",
        starting_offsets="earliest",
    )
    KafkaToS3Operator(
        task_id="files",
        topics="trips",
        bucket="lake",
        pipeline="trips-avro",
        topics_dir="avro",
        format=AvroContainer(codec="zstandard"),
        value_converter="avro",
        registry_conn_id="registry_default",
        offsets="data_interval",
    )

    KafkaToS3Operator(
        task_id="lines",
        topics="trips",
        bucket="lake",
        pipeline="trips-csv",
        topics_dir="csv",
        format=Csv(separator=";", header=False, null="NULL", compression="gzip"),
        value_converter="avro",
        registry_conn_id="registry_default",
        offsets="incremental",
        starting_offsets="earliest",
    )
    KafkaToS3Operator(
        task_id="documents",
        topics="clicks",
        bucket="lake",
        pipeline="clicks",
        format=Parquet(),
        value_converter=JsonSchemaConverter(decimal_format="NUMERIC"),
        registry_conn_id="registry_default",
        offsets="data_interval",
    )

with DAG("names_and_mappings", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
    KafkaToS3Operator(
        task_id="short",
        topics="events",
        bucket="lake",
        pipeline="events",
        format="json",
        offsets="incremental",
        starting_offsets="earliest",
        partitioner="hourly",
        action="{{ params.action }}",
        rotation={"flush_size": 1_000},
    )
    KafkaToS3Operator(
        task_id="from_yaml",
        topics="events",
        bucket="lake",
        pipeline="events-raw",
        topics_dir="raw",
        format={"kind": "bytes", "compression": "gzip"},
        offsets="incremental",
        starting_offsets="latest",
        partitioner=ByPartition(),
    )
    KafkaToS3Operator(
        task_id="parquet_from_yaml",
        topics="events",
        bucket="lake",
        pipeline="events-parquet",
        topics_dir="parquet",
        format={"kind": "parquet", "compression": "zstd"},
        value_converter={"kind": "json_schema", "decimal_format": "NUMERIC"},
        registry_conn_id="registry_default",
        offsets="incremental",
        starting_offsets="latest",
    )
    KafkaToS3Operator(
        task_id="csv_by_its_name",
        topics="events",
        bucket="lake",
        pipeline="events-csv",
        topics_dir="csv",
        format="csv",
        value_converter={"kind": "avro"},
        registry_conn_id="registry_default",
        schema_compatibility="BACKWARD",
        naming={"schema_affix": "PREFIX"},
        offsets="incremental",
        starting_offsets="latest",
    )


def total(bucket: str) -> int:
    """A consumer of landed records, without Airflow."""
    states = snapshots(bucket, pipeline="sales", at={"orders": 7}, topics=["orders", "refunds"])
    options: dict[str, str] = states["orders"].options
    changes: Snapshot = Snapshot.open(bucket, "orders", pipeline="sales").changes(since=6)
    columns: list[str] = changes.schema(batches=[7]).names
    records = arrow_batches(changes.log.store, changes.objects(), changes.schema())
    dataset = arrow_dataset(states["refunds"], partitions=[0])
    return sum(batch.num_rows for batch in records) + dataset.count_rows() + len(columns) + len(options)
