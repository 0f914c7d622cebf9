"""The bucket of each released version is read, verified, continued and replayed by every later one.

The file of a version never changes: ``python -m tests.golden bucket`` makes it once, before the release.
"""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Final

import jsonschema
import msgspec
import pytest

from airflow_provider_kafka_s3.batch.request import TopicResult
from airflow_provider_kafka_s3.documents.codec import decode
from airflow_provider_kafka_s3.documents.schemas import KINDS, json_schema
from airflow_provider_kafka_s3.testing.invariants import snapshot
from airflow_provider_kafka_s3.version import __version__
from tests.golden.lake import BUCKETS, Lake, path_of_bucket, payment
from tests.golden.made_bucket import CLICKS, DAYS, LATE, ORDERS, SENSORS, TICKS, Replayer, delete_expired

CHECKSUMS: Final = {
    "0.1.0": "f412dba04f60a40eb4f0030443bd07d42cb47abd348ee76e4d46cd0747b14b4d",
}
"""SHA-256 of the file of each version."""

versions = pytest.mark.parametrize("version", CHECKSUMS)


def stored(version: str) -> Lake:
    """The golden bucket of a version, in memory."""
    return Lake.load(path_of_bucket(version))


def is_replaced(key: str) -> bool:
    """Whether a document is one of the few that are replaced."""
    return key.endswith(("/marker.json", "/expiry.json")) or "/_summaries/" in key or "/last_chunk_index." in key


def test_the_bucket_of_a_version_never_changes() -> None:
    """This version has one, too. If this fails, restore the file: readers of old buckets cannot make them again."""
    files = {path.name.removesuffix(".tar.xz"): path.read_bytes() for path in BUCKETS.iterdir()}
    assert {version: hashlib.sha256(body).hexdigest() for version, body in files.items()} == CHECKSUMS
    assert __version__ in CHECKSUMS, "make the bucket of this version: python -m tests.golden bucket"
    assert sum(map(len, files.values())) < 300_000


@versions
def test_every_document_is_read_and_valid_by_its_schema(version: str) -> None:
    """The bucket has one of each kind."""
    lake = stored(version)
    kinds = {kind.__name__.lower(): kind for kind in KINDS}
    validators = {name: jsonschema.Draft202012Validator(json_schema(kind)) for name, kind in kinds.items()}
    seen = set()
    for info in lake.bucket.list(""):
        if "/_kafka_s3/" in info.key:
            document = lake.bucket.get(info.key)
            assert document is not None
            body = json.loads(document.body)
            validators[body["kind"]].validate(body)
            decode(kinds[body["kind"]], document.body, info.key)
            seen.add(body["kind"])
    assert seen == set(kinds)


@versions
def test_readers_have_the_same_rows(version: str) -> None:
    """Of every topic, with the columns of their objects."""
    lake = stored(version)
    rows = {"/".join(msgspec.structs.astuple(address)): lake.read(address) for address in lake.addresses()}
    assert rows == lake.rows
    assert all(rows.values())


@versions
def test_every_topic_is_verified_without_a_finding(version: str) -> None:
    """By the invariants of a bucket, record by record, and by the action, which writes nothing."""
    lake = stored(version)
    before = snapshot(lake.bucket)
    for address in lake.addresses():
        lake.check(address, recovered=False)
        result = lake.land(address, lake.layout(address), "verify", action="verify", starting=None)
        assert result.verification is not None
        assert result.verification.missing == result.verification.restored == ()
    assert snapshot(lake.bucket) == before


@versions
def test_every_topic_is_continued(version: str) -> None:
    """Open batches are completed and new records landed; nothing is replaced but markers, summaries and expiry."""
    lake = stored(version)
    before = snapshot(lake.bucket)
    for address in (ORDERS, LATE, CLICKS, SENSORS, TICKS):
        lake.append(address.topic, b'{"id": 99}', at=1_767_400_000_000, key=b"k", headers=[("n", b"1")])
    more = {"id": 99, "customer": None, "at": 0, "amount": Decimal("1.00")}
    lake.append("payments", payment(more), at=1_767_400_000_000)
    lake.append("chunks", b"chunk 99", at=1_767_322_800_000)
    for address in lake.addresses():
        records = lake.check(address, recovered=False).records
        result = lake.land(address, lake.layout(address), "continued")
        assert isinstance(result, TopicResult)
        assert result.status == "ok"
        assert lake.check(address, recovered=address != DAYS).records > records, address
    after = snapshot(lake.bucket)
    assert {key for key, content in before.items() if after.get(key) != content and not is_replaced(key)} == set()


@versions
def test_a_deleted_object_is_written_again_with_its_records(version: str) -> None:
    """From Kafka, by the digest in the manifest; of formats whose size depends on no library."""
    lake = stored(version)
    for address in (CLICKS, ORDERS, TICKS):
        key = f"lake/{address.topic}/"
        deleted = max(info.key for info in lake.bucket.list(key))
        lake.bucket.delete(deleted)
        result = lake.land(address, lake.layout(address), "restored", action="restore", starting=None)
        assert result.verification is not None
        assert result.verification.restored == (deleted,)
        lake.check(address, recovered=False)


@versions
def test_a_replay_goes_on_and_another_one_sends_every_record(version: str) -> None:
    """The stored one has ended in partition 0, and sends the other; nothing of the topic changes."""
    lake = stored(version)
    replayer = Replayer(lake)
    assert replayer.replay(TICKS).sent == {0: 51, 1: 51}
    assert [record.value for record in replayer.cluster.sent[1]] == [b"%d" % n for n in range(1, 102, 2)]
    assert 0 not in replayer.cluster.sent
    replayer = Replayer(lake)
    replayer.replay(TICKS, "another")
    sent = [record.value for records in replayer.cluster.sent.values() for record in records]
    assert sorted(sent) == sorted(b"%d" % n for n in range(102))
    lake.check(TICKS, recovered=True)


@versions
def test_objects_that_were_recorded_are_deleted(version: str) -> None:
    """Their time has come; those that are landed by day stay there."""
    lake = stored(version)
    waiting = {info.key for info in lake.bucket.list("lake/clicks/") if "/day=03/" in info.key}
    delete_expired(lake)
    assert waiting
    assert not waiting & {info.key for info in lake.bucket.list("lake/clicks/")}
    lake.check(CLICKS, recovered=True)
    assert lake.read(DAYS) == lake.rows["/".join(msgspec.structs.astuple(DAYS))]
