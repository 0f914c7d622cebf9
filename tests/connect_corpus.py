"""What Kafka Connect's S3 sink wrote in recorded scenarios: its connectors, their records, and the objects."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka

__all__ = ["SCENARIOS", "Record", "Scenario"]

_VECTORS: Final = Path(__file__).parent / "vectors" / "connect_corpus.json"


class Record(NamedTuple):
    """A record as it is in Kafka."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Scenario:
    """One connector, and what it left.

    Attributes:
        case: as recorded.
    """

    case: Mapping[str, Any]

    @property
    def topic(self) -> str:
        """Its name."""
        return str(self.case["topic"])

    @property
    def partitions(self) -> int:
        """Number of Kafka partitions."""
        return int(self.case["partitions"])

    @property
    def committed(self) -> dict[int, int]:
        """Offsets of the consumer group at the end."""
        return {int(p): offset for p, offset in self.case["committed"].items() if offset is not None}

    def connector(self, topic: str) -> dict[str, str]:
        """The configuration of the connector, for a topic of any name."""
        return {
            "name": topic,
            "connector.class": "io.confluent.connect.s3.S3SinkConnector",
            "topics": topic,
            "s3.bucket.name": "lake",
            **self.case["config"],
        }

    @cached_property
    def records(self) -> dict[int, list[Record]]:
        """Those of each Kafka partition."""
        found: dict[int, list[Record]] = {p: [] for p in range(self.partitions)}
        for index, (partition, timestamp, key, value, *more) in enumerate(self.case["records"]):
            rows = found[partition]
            offset = self.case["offsets"][index] if "offsets" in self.case else len(rows)
            headers = tuple((name, _sent(text)) for name, text in (more or [None])[0] or ())
            rows.append(Record(offset, timestamp, _sent(key), _sent(value, self.case.get("envelope")), headers))
        return found

    def fill(self, kafka: SimulatedKafka) -> None:
        """Create the topic, with the records at their offsets."""
        kafka.create_topic(self.topic, self.partitions)
        for partition, records in self.records.items():
            for record in records:
                while kafka.bounds(self.topic, partition)[1] < record.offset:
                    kafka.append_marker(self.topic, partition)
                kafka.append(
                    self.topic, partition, record.value, record.timestamp, key=record.key, headers=record.headers
                )
        if deleted := self.case.get("prepare", {}).get("delete_before"):
            kafka.delete_records(self.topic, 0, deleted)

    def objects(self, topic: str) -> dict[str, bytes]:
        """Key -> bytes, for a topic of any name."""
        made = {}
        for one in self.case["objects"]:
            body = one["content"].encode() if "content" in one else base64.b64decode(one["base64"])
            body = gzip.compress(body, mtime=0) if one.get("compression") == "gzip" else body
            made[str(one["key"]).replace(self.topic, topic)] = body
        return made


def _sent(value: Any, envelope: Any = None) -> bytes | None:
    """A key, value or header as it was in Kafka, in its envelope if it has one."""
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return (
        str(value).encode() if envelope is None else f'{{"schema":{json.dumps(envelope)},"payload":{value}}}'.encode()
    )


SCENARIOS: Final = {case["id"]: Scenario(case) for case in json.loads(_VECTORS.read_text())["cases"]}
"""By their ids."""
