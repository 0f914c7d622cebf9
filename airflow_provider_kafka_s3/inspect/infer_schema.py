"""The schema of a topic whose values are JSON without one, from a sample of its oldest and its newest records."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_kafka_s3.arrays import int64_values
from airflow_provider_kafka_s3.batch.source import Isolation, Source
from airflow_provider_kafka_s3.converters.json_scalar import InvalidJsonError, document
from airflow_provider_kafka_s3.converters.registry_header import schema_id
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.plan import fair_share
from airflow_provider_kafka_s3.exceptions import ConfigurationError, DataLossError
from airflow_provider_kafka_s3.inspect.json_shape import FieldEvidence, NoTypeError, Schema, Shape, record_schema
from airflow_provider_kafka_s3.messages import count, few
from airflow_provider_kafka_s3.parallel import in_threads
from airflow_provider_kafka_s3.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "NOT_JSON",
    "OBJECTS",
    "WITH_HEADER",
    "InferredSchema",
    "SampledRecord",
    "infer_schema",
    "kind_of_value",
    "sampled_offsets",
    "sampled_records",
]

OBJECTS: Final = "JSON objects"
NOT_JSON: Final = "bytes that are not JSON"
WITH_HEADER: Final = "bytes with the header of a schema registry"
"""What values are, see :func:`kind_of_value`."""

_SAMPLE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the values of a sample at most."""
_READS_AT_ONCE: Final = 8


@dataclass(frozen=True)
class InferredSchema:
    """A schema, and what was seen.

    Attributes:
        topic: its name.
        offsets: that were sampled.
        records: number of records in them.
        documents: number of those that are JSON objects.
        null_values: number of those whose value is null, or has no bytes.
        others: numbers of all others, by what they are.
        schema: as Avro's JSON, for ``JsonConverter(schema=…)``.
        fields: what was seen of each field.
        more_fields: values of fields beyond the most columns, which are not in the schema.
    """

    topic: str
    offsets: Offsets
    records: int
    documents: int
    null_values: int
    others: dict[str, int]
    schema: Schema
    fields: tuple[FieldEvidence, ...]
    more_fields: int

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "topic": self.topic,
            "offsets": self.offsets.to_json(),
            "records": self.records,
            "documents": self.documents,
            "null_values": self.null_values,
            "others": self.others,
            "schema": self.schema,
            "fields": [field.to_json() for field in self.fields],
            "more_fields": self.more_fields,
        }


def infer_schema(
    source: Source,
    topic: str,
    *,
    records: int = 10_000,
    isolation: Isolation = "read_committed",
    logical_types: bool = False,
) -> InferredSchema:
    """Infer the schema of the values of a topic. Nothing is written, and no consumer group is used.

    Half of the records are the oldest ones of all partitions, and half are the newest ones. The same records give the
    same schema.

    Args:
        source: the Kafka cluster.
        topic: its name.
        records: number of records, at most.
        isolation: level of the reader.
        logical_types: whether texts that all are times or decimals have their logical type, rather than ``string``.

    Raises:
        ConfigurationError: the topic has no records, or less than half of them are JSON objects.
        KafkaS3Error: Kafka refuses a request, or is not available.
    """
    if records < 1:
        raise ConfigurationError(f"records={records} must be a positive number")
    partitions = source.describe(topic).partitions
    lows, highs = source.earliest(topic, partitions), source.ends(topic, partitions, isolation)
    whole = Offsets({p: [(lows[p], highs[p])] for p in partitions if lows[p] < highs[p]})
    offsets = sampled_offsets(whole, records)
    sample = _Sample(topic)
    for record in sampled_records(source, topic, offsets, isolation):
        sample.add(record)
    sample.require_documents()
    try:
        schema, fields = record_schema(sample.shape, _record_name(topic), logical_types=logical_types)
    except NoTypeError as e:
        raise ConfigurationError(f"the JSON objects of topic {topic!r} have no field for a schema: {e}") from None
    return InferredSchema(
        topic=topic,
        offsets=offsets,
        records=sample.records,
        documents=sample.shape.count,
        null_values=sample.null_values,
        others=dict(sorted(sample.others.items())),
        schema=schema,
        fields=tuple(fields),
        more_fields=sample.shape.more,
    )


def sampled_offsets(whole: Offsets, records: int) -> Offsets:
    """Half of the offsets from the oldest ones of each partition, half from the newest; as evenly as possible.

    Args:
        whole: all offsets of each partition.
        records: number of offsets at most.
    """
    oldest = fair_share(whole, records - records // 2)
    behind = whole - oldest
    counts = {p: sum(end - start for start, end in ranges) for p, ranges in fair_share(behind, records // 2).items()}
    newest = Offsets({p: [(behind[p][-1][1] - number, behind[p][-1][1])] for p, number in counts.items() if number})
    return oldest | newest


class SampledRecord(NamedTuple):
    """A record of a sample.

    Attributes:
        partition: its Kafka partition.
        offset: its offset.
        timestamp: in milliseconds since the epoch, or :data:`~airflow_provider_kafka_s3.arrays.NO_TIMESTAMP`.
        value: its value.
    """

    partition: int
    offset: int
    timestamp: int
    value: bytes | None


def sampled_records(source: Source, topic: str, offsets: Offsets, isolation: Isolation) -> Iterator[SampledRecord]:
    """The records of a sample, in the order of partitions and offsets; at most 256 MiB of values.

    Args:
        source: the Kafka cluster.
        topic: name of the topic.
        offsets: those of the sample. Records that retention deletes meanwhile are left out.
        isolation: level of the reader.
    """
    ranges = [(p, start, end) for p, of_partition in offsets.items() for start, end in of_partition]
    limit = _SAMPLE_BYTES // max(len(ranges), 1)
    with progress(f"topic {topic}: sample records", total=offsets.count, unit="offset") as advance:

        def read(place: tuple[int, int, int]) -> list[SampledRecord]:
            partition, start, end = place
            batches = source.read(topic, partition, start, end, isolation)
            rows: list[SampledRecord] = []
            # What retention deletes in the meantime is not needed: a sample has what it has read.
            with contextlib.suppress(DataLossError):
                rows.extend(_first_records(partition, batches, limit))
            advance(end - start)
            return rows

        for rows in in_threads(read, ranges, threads=_READS_AT_ONCE):
            yield from rows


def _first_records(partition: int, batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[SampledRecord]:
    """The first records, until their values have ``limit`` bytes."""
    size = 0
    for batch in batches:
        offsets: list[int] = int64_values(batch.column("offset")).tolist()
        timestamps: list[int] = int64_values(batch.column("timestamp")).tolist()
        for offset, timestamp, column in zip(offsets, timestamps, batch.column("value"), strict=True):
            value: bytes | None = column.as_py()
            yield SampledRecord(partition, offset, timestamp, value)
            size += 0 if value is None else len(value)
            if size >= limit:
                return


def kind_of_value(value: bytes) -> tuple[str, Any, str]:
    """What the bytes of a value are, the document if they are JSON, and why they are no JSON object.

    Args:
        value: of at least one byte.
    """
    try:
        parsed = document(value)
    except InvalidJsonError as e:
        return NOT_JSON if schema_id(value) is None else WITH_HEADER, None, str(e)
    if isinstance(parsed, dict):
        return OBJECTS, parsed, ""
    kind = "arrays" if isinstance(parsed, list) else "single values (numbers, texts, booleans or null)"
    return f"JSON {kind}", parsed, "the value is no JSON object"


class _Sample:
    """The records that were read.

    Attributes:
        records: their number.
        null_values: number of those whose value is null, or has no bytes.
        others: numbers of those that are no JSON objects, by what they are.
        shape: of those that are JSON objects.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.records = self.null_values = 0
        self.others: Counter[str] = Counter()
        self.shape = Shape()
        self._first_other = ""
        self._enveloped = 0

    def add(self, record: SampledRecord) -> None:
        """Look at a record."""
        self.records += 1
        if not record.value:
            self.null_values += 1
            return
        kind, parsed, reason = kind_of_value(record.value)
        if kind != OBJECTS:
            self.others[kind] += 1
            self._first_other = self._first_other or f"partition {record.partition}, offset {record.offset} ({reason})"
            return
        self._enveloped += parsed.keys() == {"schema", "payload"}
        self.shape.add(parsed)

    def require_documents(self) -> None:
        """Raise ConfigurationError unless most values are JSON objects without an envelope."""
        topic, documents, others = self._topic, self.shape.count, self.others.total()
        if not documents and not others:
            seen = f"{count(self.null_values, 'record')} with a null value, and no other" if self.records else "none"
            raise ConfigurationError(
                f"topic {topic!r} has no records that show a schema ({seen}); repeat the command when it has some"
            )
        if self._enveloped and self._enveloped == documents and documents >= others:
            raise ConfigurationError(
                f"the values of topic {topic!r} have their schema beside them ({count(documents, 'value')} with the "
                f"fields 'schema' and 'payload'); use JsonConverter(schemas_enable=True), which needs no other schema"
            )
        if documents < others:
            kinds = [f"{label}: {number:,}" for label, number in (*self.others.most_common(), (OBJECTS, documents))]
            with_header = WITH_HEADER in self.others
            remedy = "value_converter='avro', 'protobuf' or 'json_schema'" if with_header else "another value_converter"
            raise ConfigurationError(
                f"the values of topic {topic!r} are no JSON objects: of {count(self.records, 'record')} there are "
                f"{few(kinds)}. The first that is no object is {self._first_other}. Use {remedy}"
            )


def _record_name(topic: str) -> str:
    """The name of a topic, with ``_`` for what a name of Avro cannot have."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return name if not name[:1].isdigit() else f"_{name}"
