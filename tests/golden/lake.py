"""A bucket with every kind of document and object, the cluster that its records are from, and how both are stored."""

from __future__ import annotations

import base64
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_kafka_s3.batch.given_away import owning_tables
from airflow_provider_kafka_s3.batch.log import TopicLog
from airflow_provider_kafka_s3.batch.request import RunRequest, TopicResult
from airflow_provider_kafka_s3.config import Layout
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.inspect.topics import owned_topics
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.arrow import arrow_batches
from airflow_provider_kafka_s3.reading.object_schemas import schema_of_objects
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.reading.source_by_log import SourceByLog
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.storage.port import ObjectStore
from airflow_provider_kafka_s3.testing.invariants import BucketSummary, check_bucket, decode_lines
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry

__all__ = ["BUCKETS", "PAYMENT", "TOPICS_DIRS", "Lake", "path_of_bucket", "payment"]

BUCKETS: Final = Path(__file__).parent / "buckets"
TOPICS_DIRS: Final = ("lake", "compacted", "deviant")
PAYMENT: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}


def path_of_bucket(version: str) -> Path:
    """The committed file of the golden bucket of a version."""
    return BUCKETS / f"{version}.tar.xz"


def payment(value: Mapping[str, Any]) -> bytes:
    """A value of the topic ``payments``, as serializers write it: its schema has the id 1."""
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(PAYMENT), value)
    return b"\0\0\0\0\1" + datum.getvalue()


class Lake:
    """A cluster, a schema registry and a bucket; what happens to the cluster is kept, so that it can be stored.

    Attributes:
        bucket: the objects.
        registry: has the schema of payments.
        rows: by the address of a topic, the rows that readers have of it, as JSON.
    """

    def __init__(self, bucket: MemoryStore | None = None, events: Sequence[Sequence[Any]] = ()) -> None:
        self.bucket = bucket or MemoryStore("golden")
        self.registry = SimulatedRegistry()
        self.registry.register(json.dumps(PAYMENT))
        self.kafka = SimulatedKafka(records_per_poll=3)
        self.rows: dict[str, list[str]] = {}
        self._events: list[Sequence[Any]] = []
        for event in events:
            self.do(*event)

    def over(self, bucket: MemoryStore) -> Lake:
        """The same cluster and registry, another bucket."""
        other = Lake(bucket)
        other.kafka, other.registry = self.kafka, self.registry
        return other

    # -- the cluster --------------------------------------------------------------------------------------------------

    def do(self, event: str, *arguments: Any) -> None:
        """Change the cluster by a method of ``SimulatedKafka`` whose arguments are JSON."""
        self._events.append((event, *arguments))
        getattr(self.kafka, event)(*arguments)

    def append(
        self,
        topic: str,
        *values: bytes | None,
        partition: int = 0,
        at: int = -1,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Append records."""
        for value in values:
            more = {"key": _text(key), "headers": [[name, _text(content)] for name, content in headers]}
            self._events.append(("append", topic, partition, _text(value), at, more))
            self.kafka.append(topic, partition, value, at, key=key, headers=headers)

    # -- pipelines ----------------------------------------------------------------------------------------------------

    def pipeline(self, address: TopicAddress, store: ObjectStore | None = None) -> TopicPipeline:
        """A new process of a topic of a pipeline."""
        durable = DurableStore(store or self.bucket, Retrier())
        return TopicPipeline(
            durable,
            SourceByLog(self.kafka, TopicLog(durable, address)),
            **msgspec.structs.asdict(address),
            registry=self.registry,
            sleep=lambda _: None,
        )

    def land(
        self, address: TopicAddress, layout: Layout, run: str, store: ObjectStore | None = None, **settings: Any
    ) -> TopicResult:
        """Run to the end; an incremental run if the settings have no window."""
        settings = {"offsets": "incremental", "starting": "earliest", "adopt_wait": 0.0, **settings}
        return self.pipeline(address, store).land(RunRequest(run=run, layout=layout, **settings))

    def addresses(self) -> list[TopicAddress]:
        """All topics that a pipeline owns."""
        store = DurableStore(self.bucket, Retrier())
        return [address for name in TOPICS_DIRS for address in owned_topics(store, topics_dir=name)]

    def layout(self, address: TopicAddress) -> Layout:
        """The layout of the last batch that has one."""
        topic_log = self.pipeline(address).log
        return topic_log.last_layout(topic_log.view().next)

    # -- checks -------------------------------------------------------------------------------------------------------

    def read(self, address: TopicAddress) -> list[str]:
        """The rows of a topic as JSON, sorted, without those of objects that a table owns."""
        snapshot = Snapshot(self.pipeline(address).log)
        given = max((table.last for table in owning_tables(snapshot.log)), default=0)
        objects = [one for one in snapshot.objects() if one.batch > given]
        if not objects:
            return []
        batches = arrow_batches(snapshot.log.store, objects, schema_of_objects(snapshot.log.store, objects))
        return sorted(json.dumps(row, sort_keys=True, default=_json) for batch in batches for row in batch.to_pylist())

    def check(self, address: TopicAddress, *, recovered: bool) -> BucketSummary:
        """Compare a topic with Kafka, record by record, and check all its documents."""
        return check_bucket(
            self.bucket,
            **msgspec.structs.asdict(address),
            source=self.kafka.all_records(),
            decoder=_DECODERS.get(address.topic, decode_lines),
            is_optional=self.kafka.is_optional,
            recovered=recovered,
        )

    # -- the file -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Store bucket, cluster and rows in one file."""
        metadata = {}
        with lzma.open(path, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
            for info in self.bucket.list(""):
                stored = self.bucket.get(info.key)
                assert stored is not None
                metadata[info.key] = dict(stored.metadata)
                _add(archive, f"bucket/{info.key}", stored.body)
            for name, content in {"metadata": metadata, "kafka": self._events, "rows": self.rows}.items():
                _add(archive, f"{name}.json", json.dumps(content, indent=0).encode())

    @classmethod
    def load(cls, path: Path) -> Lake:
        """Read what :meth:`save` has stored; uploads that were open have expired."""
        with lzma.open(path) as packed, tarfile.open(fileobj=packed) as archive:
            files = {member.name: file.read() for member in archive if (file := archive.extractfile(member))}
        bucket = MemoryStore("golden")
        for key, metadata in json.loads(files["metadata.json"]).items():
            bucket.put_new(key, files[f"bucket/{key}"], metadata=metadata)
        lake = cls(bucket)
        for event, *arguments in json.loads(files["kafka.json"]):
            if event == "append":
                topic, partition, value, at, more = arguments
                headers = [(name, _bytes(content)) for name, content in more["headers"]]
                lake.append(topic, _bytes(value), partition=partition, at=at, key=_bytes(more["key"]), headers=headers)
            else:
                lake.do(event, *arguments)
        lake.rows = json.loads(files["rows.json"])
        return lake


def _payments(_: str, body: bytes) -> list[bytes]:
    return [payment(row) for row in pq.read_table(pa.BufferReader(body)).to_pylist()]


def _envelopes(key: str, body: bytes) -> list[bytes]:
    return [json.dumps(json.loads(line)["value"]).encode() for line in decode_lines(key, body)]


_DECODERS: Final[Mapping[str, Callable[[str, bytes], Sequence[bytes | None]]]] = {
    "payments": _payments,
    "clicks": _envelopes,
    "ticks": _envelopes,
}


def _add(archive: tarfile.TarFile, name: str, body: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    archive.addfile(member, io.BytesIO(body))


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _json(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
