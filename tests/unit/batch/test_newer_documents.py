"""A document of a newer version ends whatever reads it with an error that names both versions; nothing is written."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3.config import Landed
from airflow_provider_kafka_s3.documents.addresses import TopicAddress
from airflow_provider_kafka_s3.documents.codec import FORMAT, canonical, decode, digest
from airflow_provider_kafka_s3.documents.offsets import Offsets
from airflow_provider_kafka_s3.documents.schemas import KINDS
from airflow_provider_kafka_s3.exceptions import KafkaS3Error, UnsupportedFormatError
from airflow_provider_kafka_s3.inspect.topics import owned_topics
from airflow_provider_kafka_s3.maintenance.expire import ExpiryGuard, ExpiryRule
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.reading.snapshot import Snapshot
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.invariants import snapshot
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from airflow_provider_kafka_s3.version import __version__
from tests.golden.lake import Lake, path_of_bucket, payment
from tests.golden.made_bucket import CLICKS, ORDERS, PAYMENTS, TICKS, Replayer

ERROR: Final = (
    rf"^upgrade airflow-provider-kafka-s3 here: this worker has version {__version__}, and version 9\.1\.0 wrote the "
)
CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "format": {"format": FORMAT + 1, "version": "9.1.0"},
    "field": {"unknown": 1, "version": "9.1.0"},
}
CONTROL: Final = "lake/_kafka_s3/"


def newer(body: bytes, change: Mapping[str, Any]) -> bytes:
    """A document as a newer version has written it, with a valid checksum."""
    changed = {**json.loads(body), **change}
    changed.pop("sha256")
    return canonical({**changed, "sha256": digest(changed)})


def no_guard(landed: Landed) -> ExpiryGuard:
    """No rule of these tests names another pipeline."""
    raise AssertionError(landed)


@pytest.fixture(scope="module")
def golden() -> Lake:
    """The golden bucket, and a record of each topic that is not landed."""
    lake = Lake.load(path_of_bucket("0.1.0"))
    for address in (ORDERS, CLICKS, TICKS):
        lake.append(address.topic, b"99", at=1_767_400_000_000, key=b"k")
    value = {"id": 99, "customer": None, "at": 0, "amount": Decimal("1.00")}
    lake.append("payments", payment(value), at=1_767_400_000_000)
    return lake


def land(run: str, **settings: Any) -> Callable[[TopicPipeline, Lake, TopicAddress], object]:
    """A run, by a process whose store may count requests."""
    return lambda pipeline, lake, address: lake.land(
        address, lake.layout(address), run, pipeline.log.store.store, **settings
    )


ACTIONS: Final[Mapping[str, Callable[[TopicPipeline, Lake, TopicAddress], object]]] = {
    "land": land("new"),
    "rerun": land("planned"),
    "verify": land("other", action="verify", starting=None),
    "restore": land("other", action="restore", starting=None),
    "status": lambda pipeline, *_: pipeline.status(last=10),
    "metrics": lambda pipeline, *_: pipeline.gauges(now=time.time()),
    "read": lambda pipeline, *_: Snapshot(pipeline.log).objects(),
    "recover": lambda pipeline, *_: pipeline.recover(operator="me"),
    "repair": lambda pipeline, *_: pipeline.repair(start={}, every_document=True),
    "abandon": lambda pipeline, *_: pipeline.abandon(8, release="debt", reason="", operator="me"),
    "accept-loss": lambda pipeline, *_: pipeline.accept_deleted(3, reason="", operator="me"),
    "accept-gone": lambda pipeline, *_: pipeline.accept_gone(Offsets({0: ((0, 1),)}), reason="", operator="me"),
    "reset": lambda pipeline, *_: pipeline.reset(operator="me"),
    "release": lambda pipeline, *_: pipeline.release(reason="", operator="me"),
    "gc": lambda pipeline, *_: pipeline.collect(pipeline.find_garbage(older_than=0.0, landed=True)),
    "expire": lambda pipeline, *_: pipeline.expire(
        ExpiryRule(older_than=0.0, least_age=0.0, grace=0.0, operator="me", tables=frozenset({"lake.payments"})),
        landed_in=no_guard,
    ),
    "withdraw": lambda pipeline, *_: pipeline.withdraw_expiry(),
    "topics": lambda pipeline, *_: owned_topics(pipeline.log.store, topics_dir="lake"),
}

OF_ORDERS: Final = f"{CONTROL}{ORDERS.pipeline}/orders/"
DECIDING: Final = {
    "marker": (ORDERS, f"{OF_ORDERS}marker.json"),
    "plan": (ORDERS, f"{OF_ORDERS}batches/0000000003.plan.json"),
    "open plan": (ORDERS, f"{OF_ORDERS}batches/0000000007.plan.json"),
    "manifest": (ORDERS, f"{OF_ORDERS}batches/0000000003.manifest.json"),
    "amend": (ORDERS, f"{OF_ORDERS}batches/0000000003.amend.1.json"),
    "run": (ORDERS, f"{OF_ORDERS}runs/planned.json"),
    "owner": (ORDERS, f"{CONTROL}_owners/orders.json"),
    "schema": (PAYMENTS, f"{CONTROL}{PAYMENTS.pipeline}/payments/schemas/1.json"),
    "table": (PAYMENTS, f"{CONTROL}{PAYMENTS.pipeline}/payments/tables/lake.payments.json"),
    "expiry": (CLICKS, f"{CONTROL}{CLICKS.pipeline}/clicks/expiry.json"),
}
"""Documents on which something depends, and their topics."""
PLANNED: Final = {
    f"{CONTROL}{PAYMENTS.pipeline}/payments/{name}"
    for name in ("runs/new.json", "runs/planned.json", "batches/0000000004.plan.json")
}


def act(golden: Lake, bucket: MemoryStore, address: TopicAddress, action: str) -> tuple[Exception | None, set[str]]:
    """The error of an action, and the keys that it has read."""
    store = FaultyStore(bucket)
    lake = golden.over(bucket)
    error: Exception | None = None
    try:
        ACTIONS[action](lake.pipeline(address, store), lake, address)
    except KafkaS3Error as e:
        error = e
    return error, {request.key for request in store.requests if request.operation == "get"}


def with_newer(golden: Lake, key: str, change: str) -> MemoryStore:
    """The bucket with a document of a newer version."""
    bucket = golden.bucket.copy()
    document = bucket.get(key)
    assert document is not None, key
    bucket.put_if_match(key, newer(document.body, CHANGES[change]), etag=document.etag)
    return bucket


@pytest.mark.parametrize("change", CHANGES)
def test_no_kind_of_document_is_read_that_a_newer_version_has_changed(golden: Lake, change: str) -> None:
    """The error has the address; an unknown field is no guess at what the newer version means by it."""
    kinds = {kind.__name__.lower(): kind for kind in KINDS}
    seen = set()
    for info in golden.bucket.list(""):
        document = golden.bucket.get(info.key)
        if "/_kafka_s3/" in info.key and document is not None:
            name = json.loads(document.body)["kind"]
            if name not in seen:
                seen.add(name)
                with pytest.raises(UnsupportedFormatError, match=rf"{ERROR}{name}, .*Nothing was changed. See here"):
                    decode(kinds[name], newer(document.body, CHANGES[change]), "here")
    assert seen == set(kinds)


@pytest.mark.parametrize("name", DECIDING)
def test_whatever_reads_a_document_of_a_newer_version_writes_nothing(golden: Lake, name: str) -> None:
    """It ends with an error that names the version; what does not read the document is as before."""
    address, key = DECIDING[name]
    bucket = with_newer(golden, key, "field")
    before = snapshot(bucket)
    refused = set()
    for action in ACTIONS:
        changed = bucket.copy()
        error, read = act(golden, changed, address, action)
        if key in read:
            assert isinstance(error, UnsupportedFormatError), (action, error)
            assert "version 9.1.0 wrote the" in str(error), action
            # The ids of schemas are in the records, so a batch is planned before they are known: the plan stays open.
            allowed = PLANNED if name == "schema" else set()
            assert {item[0] for item in snapshot(changed).items() ^ before.items()} <= allowed, action
            refused.add(action)
    assert refused, "nothing reads it"


@pytest.mark.parametrize(
    ("address", "key"),
    [
        pytest.param(ORDERS, f"{CONTROL}_summaries/{ORDERS.pipeline}/orders.json", id="summary"),
        pytest.param(TICKS, f"{CONTROL}{TICKS.pipeline}/ticks/index/0000000001-0000000100.json", id="index"),
    ],
)
def test_a_newer_derived_document_is_neither_used_nor_replaced(
    golden: Lake, address: TopicAddress, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No decision depends on it: batches are landed, read and repaired by plans and manifests, with a warning."""
    bucket = with_newer(golden, key, "format")
    stored = bucket.get(key)
    before = {info.key for info in bucket.list(f"lake/{address.topic}/")}
    for action in ("land", "repair", "read"):
        assert act(golden, bucket, address, action)[0] is None
    assert {info.key for info in bucket.list(f"lake/{address.topic}/")} > before
    assert bucket.get(key) == stored
    assert "version 9.1.0 wrote the" in caplog.text


@pytest.mark.parametrize("name", ["plan", "end"])
def test_a_replay_of_a_newer_version_is_not_continued(golden: Lake, name: str) -> None:
    """Nothing is sent, nothing is written."""
    folder = f"{CONTROL}{TICKS.pipeline}/ticks/replays/again/{name}"
    (key,) = (info.key for info in golden.bucket.list(folder))
    lake = golden.over(with_newer(golden, key, "format"))
    before = snapshot(lake.bucket)
    replayer = Replayer(lake)
    with pytest.raises(UnsupportedFormatError, match=ERROR):
        replayer.replay(TICKS)
    assert snapshot(lake.bucket) == before
    assert not replayer.cluster.sent
