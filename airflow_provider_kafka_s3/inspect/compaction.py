"""The task that makes few large objects of the many small ones of a topic, as text for a DAG."""

from __future__ import annotations

from typing import Any, Final

from airflow_provider_kafka_s3.config import (
    AvroContainer,
    ByPartition,
    Daily,
    Envelope,
    Hourly,
    JsonConverter,
    JsonLines,
    Landed,
    LandedConverter,
    Layout,
    Naming,
    Parquet,
    RawBytes,
    Rotation,
    ValuesOnly,
)
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.exceptions import ConfigurationError

__all__ = ["MANY_OBJECTS", "compaction_task"]

MANY_OBJECTS: Final = 100
"""Small objects that are worth a compaction."""


def compaction_task(bucket: str, address: TopicAddress, layout: Layout) -> str | None:
    """The operator of a pipeline over a topic, with the layout of its newest batch; folders of hours become days.

    Args:
        bucket: name of the bucket.
        address: of the topic.
        layout: of its newest batch.

    Returns:
        Text of Python; None: the values of these objects are not read again, or their keys.
    """
    converter = layout.value_converter
    has_documents = isinstance(converter, JsonConverter) and not converter.has_schema
    if isinstance(layout.format, AvroContainer | Parquet) and isinstance(layout.content, ValuesOnly):
        converter = LandedConverter()
    elif not (has_documents or isinstance(layout.format, RawBytes)) or not isinstance(
        layout.content, ValuesOnly | Envelope
    ):
        return None
    partitioner = layout.partitioner
    if isinstance(partitioner, Hourly):
        partitioner = Daily(timezone=partitioner.timezone, timestamp_from=partitioner.timestamp_from)
    shares = not any(isinstance(p, ByPartition) for p in layout.partitioners) and not layout.has_index
    settings: dict[str, Any] = {
        "task_id": "compact",
        "topics": address.topic,
        "bucket": bucket,
        "pipeline": f"{address.pipeline}-compacted",
        "topics_dir": f"{address.topics_dir}-compacted".strip("-"),
        "source": Landed(pipeline=address.pipeline, topics_dir=address.topics_dir),
        "offsets": "incremental",
        "starting_offsets": "earliest",
        "format": layout.format,
        "value_converter": converter,
        "content": layout.content,
        "partitioner": partitioner,
        "rotation": Rotation(merge_partitions=shares),
        "naming": layout.naming,
        "errors": layout.errors,
        "on_bad_timestamp": layout.on_bad_timestamp,
    }
    defaults: dict[str, Any] = {
        "content": ValuesOnly(),
        "rotation": Rotation(),
        "naming": Naming(),
        "errors": "fail",
        "on_bad_timestamp": "fail",
    }
    if isinstance(layout.format, JsonLines):
        defaults["value_converter"] = JsonConverter()
    try:
        Layout(**{name: value for name, value in settings.items() if name in Layout.__struct_fields__})
    except ConfigurationError:
        return None
    lines = [f"    {name}={value!r}," for name, value in settings.items() if defaults.get(name) != value]
    return "\n".join(["KafkaToS3Operator(", *lines, ")"])
