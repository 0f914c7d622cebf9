"""A real schema registry: what it returns is read whole, and what it does when it is down changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.batch.pinned_schemas import PinnedSchemas
from airflow_provider_kafka_s3.batch.request import RunRequest
from airflow_provider_kafka_s3.cli import access
from airflow_provider_kafka_s3.cli.main import parser
from airflow_provider_kafka_s3.cli.registry_checks import check_registry
from airflow_provider_kafka_s3.config import (
    AvroContainer,
    AvroConverter,
    JsonLines,
    JsonSchemaConverter,
    Layout,
    Parquet,
)
from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    RegistryUnavailableError,
    SchemaNotFoundError,
)
from airflow_provider_kafka_s3.pipeline import TopicPipeline
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.schemas import SchemaReference
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier, RetryPolicy
from airflow_provider_kafka_s3.storage import bucket
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.testing.kafka import SimulatedKafka
from dev.certificates import Authority
from dev.ports import listens
from dev.schema_registry import SchemaRegistry
from dev.waiting import wait_until
from tests.landed_rows import rows

ROOT = Path(__file__).parents[2]
STARTER = """
import sys
from dev.schema_registry import SchemaRegistry
print(SchemaRegistry().start().url, flush=True)
sys.stdin.read()
"""
USER, PASSWORD = "reader", "p a$s\\w:{o}rd#=ü"
PREFIX = "topics/_kafka_s3/pipeline/events/"

ADDRESS = {"type": "record", "name": "Address", "namespace": "a.b", "fields": [{"name": "city", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "a.b",
    "fields": [{"name": "address", "type": "a.b.Address"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "a.b",
    "fields": [{"name": "buyer", "type": "a.b.Person"}, {"name": "to", "type": "a.b.Address"}],
}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """One that anybody may read."""
    with SchemaRegistry() as started:
        yield started


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SchemaRegistry, Authority]]:
    """One that speaks TLS, with an authority of its own, and demands a password."""
    authority = Authority(tmp_path_factory.mktemp("registry"))
    with SchemaRegistry(users={USER: PASSWORD}, authority=authority) as started:
        yield started, authority


def client(*urls: str, **more: Any) -> RegistryClient:
    """A client that gives up at once."""
    return RegistryClient(RegistrySettings(urls=urls, **more), Retrier(RetryPolicy(max_retries=0)))


def reference(name: str, subject: str) -> dict[str, Any]:
    """A reference to the first version of a subject."""
    return {"name": name, "subject": subject, "version": 1}


def test_an_avro_schema_comes_with_all_that_it_refers_to(registry: SchemaRegistry) -> None:
    """In the order in which a parser needs them, and with the version that its subject gave it."""
    address, person = "address/ü", "person"
    registry.register(address, json.dumps(ADDRESS))
    registry.register(person, json.dumps(PERSON), references=[reference("a.b.Address", address)])
    references = [reference("a.b.Person", person), reference("a.b.Address", address)]
    schema_id = registry.register("order-value", json.dumps(ORDER), references=references)
    found = client(registry.url).schema(schema_id)
    assert (found.id, found.type, json.loads(found.text)) == (schema_id, "AVRO", ORDER)
    assert found.versions == {"order-value": 1}
    assert [(r.name, r.subject, r.version, json.loads(r.text)) for r in found.references] == [
        ("a.b.Address", address, 1, ADDRESS),
        ("a.b.Person", person, 1, PERSON),
    ]


def test_protobuf_and_json_schemas_keep_their_types(registry: SchemaRegistry) -> None:
    """Imports of Protobuf are references, named by the path of the file."""
    base = 'syntax = "proto3";\npackage p;\nmessage Base { string a = 1; }\n'
    text = 'syntax = "proto3";\npackage p;\nimport "p/base.proto";\nmessage M { Base base = 1; }\n'
    registry.register("p/base.proto", base, "PROTOBUF")
    proto = registry.register("m-value", text, "PROTOBUF", [reference("p/base.proto", "p/base.proto")])
    found = client(registry.url).schema(proto)
    assert (found.type, "message M" in found.text) == ("PROTOBUF", True)
    (imported,) = found.references
    assert isinstance(imported, SchemaReference)
    assert (imported.name, "message Base" in imported.text) == ("p/base.proto", True)
    schema = registry.register("j-value", '{"type": "object", "properties": {"a": {"type": "string"}}}', "JSON")
    assert client(registry.url).schema(schema).type == "JSON"


@pytest.mark.parametrize("record_format", [Parquet(), AvroContainer(), JsonLines()])
def test_json_with_schemas_of_a_registry_is_landed(registry: SchemaRegistry, record_format: Any) -> None:
    """From the registry to the object, with a schema in another subject and the drafts that serializers register."""
    place = {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/place.json", "title": "Place",
             "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}  # fmt: skip
    order = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Order", "type": "object",
             "properties": {"id": {"type": "integer"}, "note": {"type": ["null", "string"]},
                            "to": {"$ref": "http://x/place.json"}}, "required": ["id"]}  # fmt: skip
    subject = "http://x/place.json"
    draft_4 = {**place, "$schema": "http://json-schema.org/draft-04/schema#"}
    registry.register(subject, json.dumps(place), "JSON")
    schemas = [
        registry.register("json-order-value", json.dumps(order), "JSON", [reference(subject, subject)]),
        registry.register("draft-4-value", json.dumps(draft_4), "JSON"),
        registry.register("untyped-value", '{"type": "object", "properties": {"a": {}}}', "JSON"),
    ]
    layout = Layout(format=record_format, value_converter=JsonSchemaConverter(), errors="dead_letter")
    kafka, store = SimulatedKafka(), MemoryStore()
    kafka.create_topic("orders")
    documents = [{"id": 1, "note": "ü", "to": {"city": "Bern"}}, {"city": "Basel"}, {}]
    for schema_id, document in zip(schemas, documents, strict=True):
        value = b"\0" + schema_id.to_bytes(4, "big") + json.dumps(document).encode()
        kafka.append("orders", 0, value)
    pipeline = TopicPipeline(
        DurableStore(store, Retrier()), kafka, topics_dir="topics", pipeline="p", topic="orders",
        registry=client(registry.url),
    )  # fmt: skip
    (batch,) = pipeline.land(RunRequest(run="a", offsets="incremental", layout=layout, starting="earliest")).batches
    assert (batch.records, batch.dead_letters) == (2, 1)
    objects = {info.key: stored.body for info in store.list("topics/orders/") if (stored := store.get(info.key))}
    landed = [row for key, body in objects.items() if "_dead" not in key for row in rows(key, body)]
    assert sorted(landed, key=len) == [documents[1], documents[0]]
    (letters,) = (body for key, body in objects.items() if "_dead" in key)
    reason = f"schema {schemas[2]} of the registry cannot be used: its part 'a' has no type"
    assert reason in json.loads(letters)["reason"]


def test_the_latest_version_of_a_subject_is_the_last_that_was_registered(registry: SchemaRegistry) -> None:
    """Compatible changes alone are accepted, as by Confluent's registry."""
    wider = {**ADDRESS, "name": "Growing", "fields": [{"name": "a", "type": "string"}]}
    first = registry.register("growing", json.dumps(wider))
    wider["fields"] = [*wider["fields"], {"name": "b", "type": ["null", "string"], "default": None}]  # type: ignore[misc]
    second = registry.register("growing", json.dumps(wider))
    found = client(registry.url).latest("growing")
    assert found is not None
    assert (found.id, found.versions, json.loads(found.text)) == (second, {"growing": 2}, wider)
    assert second != first
    wider["fields"] = [{"name": "c", "type": "string"}]
    refused = registry.request("POST", "/subjects/growing/versions", {"schema": json.dumps(wider)})
    assert refused.status_code == 409
    assert client(registry.url).latest("absent") is None


def test_a_schema_whose_versions_were_deleted_is_still_read_by_its_id(registry: SchemaRegistry) -> None:
    """It has no version then. One that it refers to may have been deleted, too."""
    registry.register("deleted-base", json.dumps({**ADDRESS, "name": "Deleted"}))
    fields = [{"name": "x", "type": "a.b.Deleted"}]
    text = json.dumps({**PERSON, "name": "Deleting", "fields": fields})
    schema_id = registry.register("deleted", text, references=[reference("a.b.Deleted", "deleted-base")])
    registry.request("DELETE", "/subjects/deleted").raise_for_status()
    found = client(registry.url).schema(schema_id)
    assert (found.versions, [r.name for r in found.references]) == ({}, ["a.b.Deleted"])


def test_an_unknown_id_is_an_error_of_the_record_and_a_wrong_path_is_not(registry: SchemaRegistry) -> None:
    """The same status, and another meaning."""
    with pytest.raises(SchemaNotFoundError, match="schema 2147483647 is not in the schema registry"):
        client(registry.url).schema(2**31 - 1)
    with pytest.raises(RegistryUnavailableError, match=r"status 404.*below a path, such as /apis/ccompat/v7"):
        client(registry.url.removesuffix("/apis/ccompat/v7")).schema(1)


def test_a_password_is_shown_over_tls(secured: tuple[SchemaRegistry, Authority]) -> None:
    """A wrong one and an unknown authority are told apart, and neither is a registry without the schema."""
    registry, authority = secured
    schema_id = registry.register("t-value", json.dumps(ADDRESS))
    ca = authority.certificate_pem
    login = {"user": USER, "password": PASSWORD}
    assert client(registry.url, ca=ca, **login).schema(schema_id).versions == {"t-value": 1}
    with pytest.raises(AccessDeniedError, match="status 401; check the credentials"):
        client(registry.url, ca=ca).schema(schema_id)
    with pytest.raises(AccessDeniedError, match="status 401; check the credentials"):
        client(registry.url, ca=ca, user=USER, password="not-this-one").schema(schema_id)
    with pytest.raises(ConfigurationError, match="is not trusted"):
        client(registry.url, **login).schema(schema_id)


def checked(store: MemoryStore, conn_id: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """What ``kafka-s3 doctor`` finds about the registry and the topic ``checked``: check -> level and text."""
    monkeypatch.setattr(bucket, "open_bucket", lambda *_, retrier: DurableStore(store, retrier))
    monkeypatch.setattr(access, "Retrier", lambda: Retrier(RetryPolicy(max_retries=0)))
    where = ("--bucket", "lake", "--pipeline", "p", "--topic", "checked", "--registry-conn-id", conn_id)
    found = check_registry(access.Access(parser().parse_args(["doctor", *where])))
    assert PASSWORD not in str(found)
    return {f.check: (f.level, f"{f.message} {f.fix}") for f in found}


def test_the_doctor_checks_the_registry_and_the_schemas_of_a_topic(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first batch, with the schema that the topic has, with one of another type, and at a wrong path."""
    for name, host in (("RIGHT", registry.url), ("WRONG", registry.url.removesuffix("/apis/ccompat/v7"))):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "http", "host": host}))
    store, kafka = MemoryStore(), SimulatedKafka()
    assert checked(store, "right", monkeypatch)["subject checked-value"][0] == "warning"
    schema_id = registry.register("checked-value", '{"type": "long"}')
    level, text = checked(store, "right", monkeypatch)["subject checked-value"]
    assert (level, f"id {schema_id}, version 1 and the type AVRO; no batch" in text) == ("ok", True)

    kafka.create_topic("checked")
    kafka.append("checked", 0, b"\0" + schema_id.to_bytes(4, "big") + b"\2", timestamp=0)
    layout = Layout(format=JsonLines(), value_converter=AvroConverter())
    pipeline = TopicPipeline(
        DurableStore(store, Retrier()), kafka, topics_dir="topics", pipeline="p", topic="checked",
        registry=client(registry.url),
    )  # fmt: skip
    pipeline.land(RunRequest(run="a", offsets="incremental", layout=layout, starting="earliest"))
    assert {check: level for check, (level, _) in checked(store, "right", monkeypatch).items()} == {
        "schema registry": "ok",
        "subject checked-value": "ok",
        "stored schemas of checked": "ok",
    }

    registry.request("DELETE", "/subjects/checked-value").raise_for_status()
    registry.request("DELETE", "/subjects/checked-value?permanent=true")
    registry.register("checked-value", '{"type": "object", "properties": {}}', kind="JSON")
    level, text = checked(store, "right", monkeypatch)["subject checked-value"]
    assert (level, "the type JSON" in text, "set value_converter='json_schema'" in text) == ("error", True, True)

    ((check, (level, text)),) = checked(store, "wrong", monkeypatch).items()
    assert (check, level, "below a path, such as /apis/ccompat/v7" in text) == ("schema registry", "error", True)


def test_the_doctor_checks_the_login_of_the_registry(
    secured: tuple[SchemaRegistry, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password and an authority that is not trusted are errors with their cause."""
    registry, authority = secured
    trusted = {"ca": authority.certificate_pem}
    right = {"conn_type": "http", "host": registry.url, "login": USER, "password": PASSWORD, "extra": trusted}
    for name, connection in {
        "RIGHT": right,
        "REFUSED": {**right, "password": "not-this-one"},
        "UNTRUSTED": {**right, "extra": {}},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    found = {name: checked(MemoryStore(), name, monkeypatch) for name in ("right", "refused", "untrusted")}
    assert found["right"]["schema registry"][0] == "ok"
    for name, message in {"refused": "status 401; check the credentials", "untrusted": "is not trusted"}.items():
        ((check, (level, text)),) = found[name].items()
        assert (check, level, message in text) == ("schema registry", "error", True)


def test_a_registry_that_is_down_delays_new_schemas_and_no_others() -> None:
    """It stands still, dies and comes back: nothing is concluded, and what is pinned needs no registry."""
    store = DurableStore(MemoryStore(), Retrier())
    with SchemaRegistry() as registry:
        first = registry.register("one", '"string"')
        second = registry.register("two", '"long"')
        quick = client(registry.url, timeout=1.0)
        pinned = PinnedSchemas(store, PREFIX, quick)
        assert pinned.schema(first).text == '"string"'

        with registry.paused(), pytest.raises(RegistryUnavailableError, match="TimeoutError"):
            pinned.schema(second)
        registry.kill()
        with pytest.raises(RegistryUnavailableError, match="does not answer"):
            pinned.schema(second)
        assert PinnedSchemas(store, PREFIX, quick).schema(first).text == '"string"'

        # Its schemas were in memory, so the ids name others now.
        registry.restart()
        assert [registry.register("two", '"long"'), registry.register("three", '"bytes"')] == [first, second]
        assert pinned.schema(second).text == '"bytes"'
        assert PinnedSchemas(store, PREFIX, quick).schema(first).text == '"string"'


def test_the_registry_ends_with_its_starter_even_if_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL leaves neither a process nor a file behind."""
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with starter:
        assert starter.stdout is not None
        url = urllib.parse.urlsplit(starter.stdout.readline().strip())
        assert url.port is not None
        assert listens(url.port)
        starter.kill()
    wait_until(lambda: not listens(url.port or 0), "the registry's end")
    wait_until(lambda: list(tmp_path.glob("schema-registry-*")) == [], "the deletion of its folder")


def test_without_a_registry_the_error_names_the_target_that_fetches_it(tmp_path: Path) -> None:
    """`make registry`."""
    with pytest.raises(RuntimeError, match="run make registry"):
        SchemaRegistry(folder=tmp_path).start()
