"""How the golden bucket of a version is made: each topic has other events behind it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from airflow_provider_kafka_s3.batch.given_away import give_to_table
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.config import (
    AvroConverter,
    BlockGzip,
    Daily,
    DeviantArtNaming,
    Envelope,
    Hourly,
    JsonLines,
    Landed,
    Layout,
    Parquet,
    RawBytes,
    Rotation,
    SiblingObjects,
    default_partitioner,
)
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.kafka.offsets import TopicInfo
from airflow_provider_kafka_s3.maintenance.expire import ExpiryGuard, ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.landed_source import LandedSource
from airflow_provider_kafka_s3.replay import job, run
from airflow_provider_kafka_s3.replay.request import ReplayRequest
from airflow_provider_kafka_s3.replay.run import Replayed
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.testing.stores import Fault, FaultyStore, SimulatedCrash
from tests.golden.lake import Lake, payment
from tests.unit.replay.cluster import Cluster, Here, InThisProcess

__all__ = ["CLICKS", "DAYS", "LATE", "ORDERS", "PAYMENTS", "SENSORS", "TICKS", "Replayer", "delete_expired", "made"]

HOUR: Final = 3_600_000
START: Final = 1_767_322_800_000
"""2026-01-02, 03:00 UTC."""


def _of(pipeline: str, topic: str, topics_dir: str = "lake") -> TopicAddress:
    return TopicAddress(topics_dir=topics_dir, pipeline=pipeline, topic=topic)


ORDERS: Final = _of("orders-to-lake", "orders")
LATE: Final = _of("orders-to-lake", "late")
PAYMENTS: Final = _of("payments-to-lake", "payments")
CLICKS: Final = _of("clicks-to-lake", "clicks")
DAYS: Final = _of("clicks-by-day", "clicks", "compacted")
SENSORS: Final = _of("sensors-to-lake", "sensors")
UNUSED: Final = _of("misspelt", "unused")
TICKS: Final = _of("ticks-to-lake", "ticks")
CHUNKS: Final = _of("chunks", "chunks", "deviant")

_GZIP: Final = JsonLines(compression="gzip")
_ORDERS: Final = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), errors="dead_letter")
_PAYMENTS: Final = Layout(
    topics_dir="lake",
    format=Parquet(),
    value_converter=AvroConverter(),
    partitioner=Daily(),
    rotation=Rotation(merge_partitions=True),
)
_CLICKS: Final = Layout(topics_dir="lake", format=JsonLines(), partitioner=Hourly(), content=Envelope())
_DAYS: Final = Layout(topics_dir="compacted", format=_GZIP, partitioner=Daily(), content=Envelope())
_SENSORS: Final = Layout(
    topics_dir="lake",
    format=RawBytes(on_null="write"),
    content=SiblingObjects(keys=RawBytes(), headers=JsonLines()),
)
_TICKS: Final = Layout(topics_dir="lake", format=JsonLines(), content=Envelope())
_CHUNKS: Final = Layout(
    topics_dir="deviant",
    format=BlockGzip(lines=RawBytes(extension=""), encoder="zlib"),
    naming=DeviantArtNaming(),
    partitioner=default_partitioner(DeviantArtNaming()),
)


def made() -> Lake:
    """A new golden bucket."""
    lake = Lake()
    with mock.patch("socket.gethostname", return_value="worker-1"):
        for make in (_orders, _late, _payments, _clicks, _sensors, _unused, _ticks, _chunks):
            make(lake)
    lake.rows = {"/".join(msgspec.structs.astuple(address)): lake.read(address) for address in lake.addresses()}
    return lake


class Replayer:
    """Replays topics of a bucket to a cluster in memory."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.cluster = Cluster()

    def replay(self, address: TopicAddress, name: str = "again") -> Replayed:
        """Begin a replay, or continue it."""
        place = Here("golden", address)
        object.__setattr__(place, "bucket_in_memory", DurableStore(self._lake.bucket, Retrier()))
        config = {"bootstrap.servers": "here", "process": 0}
        with self._patched():
            return run.replay(
                place, config, ReplayRequest(replay=name, target="again"), process=InThisProcess(), visible_within=0
            )

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        with (
            mock.patch.object(job, "send_partition", self.cluster.send_partition),
            mock.patch.object(run, "KafkaCluster", _Target),
        ):
            yield


class _Target:
    """The topic that records are sent to."""

    def __init__(self, config: Any) -> None:
        pass

    def describe(self, topic: str) -> TopicInfo:
        return TopicInfo(name=topic, topic_id="id-of-topic", cluster_id="id-of-cluster", partitions=(0, 1))

    def topic_settings(self, topic: str) -> dict[str, str]:
        return {"retention.ms": "-1", "max.message.bytes": "1000000"}

    def ends(self, *args: Any, **more: Any) -> dict[int, int]:
        return {0: 0, 1: 0}


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _ends_at(lake: Lake, address: TopicAddress, layout: Layout, run: str, key: str) -> None:
    """A process of a run that ends behind the creation of a document."""
    store = FaultyStore(lake.bucket)
    store.inject(Fault.CRASH_AFTER, operation="put_new", key=key)
    with pytest.raises(SimulatedCrash):
        lake.land(address, layout, run, store)


def _orders(lake: Lake) -> None:
    """Dead letters, abandoned batches, offsets that retention has deleted, a lost object, an object written again."""
    lake.do("create_topic", "orders", 2)
    for n in range(6):
        lake.append("orders", _json(id=n, item=f"item {n}"), partition=n % 2, at=START + n * HOUR // 2)
    lake.append("orders", b"no JSON", at=START + HOUR)
    lake.land(ORDERS, _ORDERS, "first")
    lake.append("orders", _json(id=6), _json(id=7), at=START + 3 * HOUR)
    _ends_at(lake, ORDERS, _ORDERS, "abandoned", "*.plan.json")
    lake.pipeline(ORDERS).abandon(2, release="debt", reason="of the golden bucket", operator="ann@desk")
    lake.append("orders", _json(id=8), partition=1, at=START + 4 * HOUR)
    lake.land(ORDERS, _ORDERS, "third")
    lake.append("orders", _json(id=9), at=START + 5 * HOUR)
    _ends_at(lake, ORDERS, _ORDERS, "lost", "*.plan.json")
    lake.pipeline(ORDERS).abandon(4, release="lost", reason="of the golden bucket", operator="ann@desk")
    lake.append("orders", _json(id=10), _json(id=11), partition=1, at=START + 6 * HOUR)
    lake.do("delete_records", "orders", 1, 5)
    lake.pipeline(ORDERS).accept_gone(Offsets({1: ((4, 5),)}), reason="retention", operator="ann@desk")
    lake.land(ORDERS, _ORDERS, "sixth")
    written, lost = (entry.key for entry in lake.pipeline(ORDERS).log.require_decision(3)[0].objects)
    lake.bucket.delete(written)
    lake.land(ORDERS, _ORDERS, "third", action="restore")
    lake.bucket.delete(lost)
    lake.pipeline(ORDERS).accept_deleted(3, reason="deleted by mistake", operator="ann@desk")
    lake.append("orders", _json(id=12), at=START + 7 * HOUR)
    _ends_at(lake, ORDERS, _ORDERS, "planned", "*.plan.json")


def _late(lake: Lake) -> None:
    """A window, and a batch that is decided, of which no object is complete."""
    lake.do("create_topic", "late", 1)
    for n in range(4):
        lake.append("late", _json(id=n), at=START + n * HOUR)
    lake.land(LATE, _ORDERS, "window", offsets="data_interval", window=(START, START + 2 * HOUR), starting=None)
    _ends_at(lake, LATE, _ORDERS, "decided", "*.manifest.json")


def _payments(lake: Lake) -> None:
    """Values with a schema of a registry, in objects of both partitions; a table owns those of batch 1."""
    lake.do("create_topic", "payments", 2)
    for batch in range(3):
        for n in range(4):
            customer = None if n == 3 else f"c{n}"
            value = {"id": 4 * batch + n, "customer": customer, "at": START + n, "amount": Decimal(f"{n}.50")}
            lake.append("payments", payment(value), partition=n % 2, at=START)
        lake.land(PAYMENTS, _PAYMENTS, f"run {batch}")
    log = lake.pipeline(PAYMENTS).log
    give_to_table(log, "lake.payments", 1)
    for entry in log.require_decision(1)[0].objects:
        lake.bucket.delete(entry.key)


def _clicks(lake: Lake) -> None:
    """Whole records, landed again by day; of the hours, batch 1 is deleted on purpose, and batch 2 will be."""
    lake.do("create_topic", "clicks", 1)
    for batch in range(3):
        for n in range(3):
            at = START + batch * 24 * HOUR + n * HOUR // 2
            headers = (("trace", b"\x01"), ("none", None))
            lake.append("clicks", _json(page=3 * batch + n), at=at, key=b"user %d" % n, headers=headers)
        lake.land(CLICKS, _CLICKS, f"hour {batch}")
    durable = DurableStore(lake.bucket, Retrier())
    of_days = TopicPipeline(
        durable,
        LandedSource(durable, Landed(pipeline=CLICKS.pipeline, topics_dir=CLICKS.topics_dir)),
        **msgspec.structs.asdict(DAYS),
    )
    of_days.land(RunRequest(run="day", offsets="incremental", layout=_DAYS, starting="earliest"))
    for day, grace in ((1, 0.0), (2, 3600.0)):
        age = time.time() - (START + day * 24 * HOUR) / 1000
        rule = ExpiryRule(older_than=age, least_age=0.0, grace=grace, operator="ann@desk", reason="too old")
        lake.pipeline(CLICKS).expire(rule, landed_in=_no_guard)


def delete_expired(lake: Lake) -> None:
    """Delete what was recorded, when its time has come; record nothing else."""
    rule = ExpiryRule(older_than=1e11, least_age=0.0, operator="ann@desk")
    clock = TopicPipeline(
        DurableStore(lake.bucket, Retrier()),
        lake.kafka,
        **msgspec.structs.asdict(CLICKS),
        now=lambda: time.time() + 3601,
    )
    clock.expire(rule, landed_in=_no_guard)


def _no_guard(landed: Landed) -> ExpiryGuard:
    raise AssertionError(landed)


def _sensors(lake: Lake) -> None:
    """Keys and headers in objects beside the values, a deleted record, and a topic that was created again."""
    lake.do("create_topic", "sensors", 1)
    for n in range(3):
        lake.append("sensors", None if n == 1 else b"value %d" % n, key=b"k%d" % n, headers=[("n", b"%d" % n)])
    lake.land(SENSORS, _SENSORS, "before")
    lake.do("create_topic", "sensors", 1)
    lake.pipeline(SENSORS).reset(operator="ann@desk")
    lake.append("sensors", b"anew", key=b"k", headers=[("n", b"0")])
    lake.land(SENSORS, _SENSORS, "after")


def _unused(lake: Lake) -> None:
    """A topic that another pipeline may land."""
    lake.do("create_topic", "unused", 1)
    lake.append("unused", b"1")
    _ends_at(lake, UNUSED, _TICKS, "never", "*.plan.json")
    lake.pipeline(UNUSED).release(reason="a wrong name", operator="ann@desk")


def _ticks(lake: Lake) -> None:
    """An index of a hundred batches, and a replay of which one partition has ended."""
    lake.do("create_topic", "ticks", 2)
    for n in range(102):
        lake.append("ticks", b"%d" % n, partition=n % 2, at=START + n)
        lake.land(TICKS, _TICKS, f"tick {n}")
    replayer = Replayer(lake)
    replayer.cluster.on_call = _partition_0_only
    with pytest.raises(SimulatedCrash):
        replayer.replay(TICKS)


def _partition_0_only(process: int, partition: int, begin: Any) -> None:
    begin()
    if partition != 0:
        raise SimulatedCrash


def _chunks(lake: Lake) -> None:
    """Names and marker files of DeviantArt's sink."""
    lake.do("create_topic", "chunks", 2)
    for n in range(4):
        lake.append("chunks", b"chunk %d" % n, partition=n % 2, at=START)
    lake.land(CHUNKS, _CHUNKS, "run")
