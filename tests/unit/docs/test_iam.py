"""The policies of docs/iam.md hold the rights for the requests that the code sends, and no other."""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Iterable, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from airflow_provider_kafka_s3 import storage
from airflow_provider_kafka_s3.batch.pinned_schemas import PinnedSchemas
from airflow_provider_kafka_s3.cli import store_checks
from airflow_provider_kafka_s3.config import SseKms, Upload
from airflow_provider_kafka_s3.documents.addresses import control_prefix
from airflow_provider_kafka_s3.exceptions import KafkaS3Error
from airflow_provider_kafka_s3.retry import Retrier
from airflow_provider_kafka_s3.storage import s3, uploads
from airflow_provider_kafka_s3.storage.durable import DurableStore
from airflow_provider_kafka_s3.storage.memory import MemoryStore
from airflow_provider_kafka_s3.tables.partitions import glue
from airflow_provider_kafka_s3.testing.registry import SimulatedRegistry
from airflow_provider_kafka_s3.testing.stores import FaultyStore
from tests.documentation import ROOT

PAGE: Final = ROOT / "docs" / "iam.md"
PACKAGE: Final = ROOT / "airflow_provider_kafka_s3"
LISTS_UPLOADS: Final = "s3:ListBucketMultipartUploads"
TAGS: Final = "s3:PutObjectTagging"
"""Needed only with tags."""
DELETION: Final = "s3:DeleteObject"
"""Needed only by expiry."""


def statements(section: str) -> list[dict[str, Any]]:
    """What the policy of a section allows."""
    (text,) = re.findall(rf"\n##+ {re.escape(section)}\n(.*?)(?=\n##|\Z)", PAGE.read_text(), re.DOTALL)
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    found: list[dict[str, Any]] = json.loads(block)["Statement"]
    return found


def policy(section: str) -> set[str]:
    """The actions of a section's policy."""
    actions: set[str] = set()
    for statement in statements(section):
        assert statement["Effect"] == "Allow"
        action = statement["Action"]
        actions |= {action} if isinstance(action, str) else set(action)
    return actions


@pytest.fixture(scope="module")
def rights() -> dict[str, str]:
    """The right that each request needs, by the page's table."""
    text = PAGE.read_text().split("\n## Which request needs which right\n")[1]
    rows = re.findall(r"^\| ([\w, ]+) \| `([\w:]+)` \|$", text, re.MULTILINE)
    return {request: right for requests, right in rows for request in requests.split(", ")}


def client_calls(node: ast.AST) -> set[str]:
    """The requests of the calls ``self._client.some_request(…)`` below a node, as ``SomeRequest``."""
    methods = {
        call.func.attr
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Attribute)
        and call.func.value.attr == "_client"
    }
    return {method.title().replace("_", "") for method in methods}


def requests_of_store(methods: Iterable[str] | None = None) -> set[str]:
    """The requests that methods of the store's client send, with those of the helpers that they call; None: all."""
    tree = ast.parse(Path(s3.__file__).read_text())
    (store,) = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "S3Store"]
    found = {n.name: n for n in store.body if isinstance(n, ast.FunctionDef)}
    waiting, seen = list(found if methods is None else methods), set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        used = {n.attr for n in ast.walk(found[name]) if isinstance(n, ast.Attribute)} & set(found)
        waiting += used - seen
    return set().union(*(client_calls(found[name]) for name in seen))


def needed(rights: dict[str, str], requests: Set[str]) -> set[str]:
    """The rights for some requests."""
    return {rights[request] for request in requests}


def test_the_worker_may_send_what_the_store_sends_except_to_list_uploads(rights: dict[str, str]) -> None:
    """Only two modules list uploads, and both are of the command line."""
    listing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"[\w)]\.pending_uploads\(", path.read_text()) and path.parent.name not in ("storage", "testing")
    }
    assert len(listing) == 2
    assert all(name.startswith("cli/") or name.endswith("/gc.py") for name in listing), listing
    assert policy("Airflow worker and driver") == needed(rights, requests_of_store()) - {LISTS_UPLOADS, TAGS, DELETION}


def test_executors_may_send_what_an_upload_sends(rights: dict[str, str]) -> None:
    """Begin, send parts, abort; recorded at the store while one upload succeeds and another is aborted."""
    store = FaultyStore(MemoryStore())
    with uploads.UploadPool(DurableStore(store, Retrier()), part_size=5 * 1024 * 1024) as pool:
        done = pool.open("done")
        done.write(b"x")
        done.finish()
        given_up = pool.open("given up")
        given_up.write(b"x" * (6 * 1024 * 1024))
        given_up.finish()
        pool.abort_all()
    sent = requests_of_store({request.operation for request in store.requests})
    assert policy("Executors") == needed(rights, sent)


def test_executors_may_pin_schemas_with_the_rights_of_the_page(rights: dict[str, str]) -> None:
    """Recorded at the store while a schema is read for the first time, and the keys are those of the policy.

    Without the right to list a bucket, S3 does not answer that a key does not exist.
    """
    store, registry = FaultyStore(MemoryStore()), SimulatedRegistry()
    schema_id = registry.register('"string"')
    PinnedSchemas(DurableStore(store, Retrier()), control_prefix("topics", "lake_orders", "orders"), registry).schema(
        schema_id
    )
    sent = requests_of_store({request.operation for request in store.requests})
    assert policy("Schemas of a registry") == needed(rights, sent) | {"s3:ListBucket"}
    resource = statements("Schemas of a registry")[0]["Resource"].removeprefix("arn:aws:s3:::lake/")
    keys = {request.key for request in store.requests}
    assert fnmatch.filter(keys, resource) == [*keys]


def test_readers_may_get_and_list(rights: dict[str, str]) -> None:
    """Readers of objects and readers of the stored offsets."""
    reading = needed(rights, requests_of_store({"get", "head", "list"}))
    assert policy("Readers") == policy("Sensors and triggerer") == reading


def test_a_person_with_the_command_line_may_send_all_requests(rights: dict[str, str]) -> None:
    """Those of the store, and those that ``doctor`` sends beside it."""
    doctor = set(re.findall(r'_request\(access, "(\w+)"\)', Path(store_checks.__file__).read_text()))
    assert len(doctor) == 3
    assert policy("A person with the command line") == needed(rights, requests_of_store() | doctor) - {TAGS, DELETION}


def test_only_expiry_deletes_objects_and_no_document() -> None:
    """One module sends the request; its policy denies it below the folder of the documents."""
    deleting = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"[\w)]\.delete_objects\(", path.read_text()) and path.parent.name not in ("storage", "testing")
    }
    assert deleting == {"maintenance/expiry_deletion.py"}
    allowed, recorded, denied = statements("Expiry")
    assert (allowed["Effect"], allowed["Action"]) == ("Allow", DELETION)
    assert (recorded["Effect"], recorded["Action"]) == ("Allow", "s3:PutObject")
    assert (denied["Effect"], denied["Action"]) == ("Deny", DELETION)
    document = f"arn:aws:s3:::lake/{control_prefix('topics', 'lake_orders', 'orders')}"
    assert fnmatch.fnmatchcase(f"{document}expiry.json", recorded["Resource"])
    assert fnmatch.fnmatchcase(f"{document}marker.json", denied["Resource"])
    assert not fnmatch.fnmatchcase("arn:aws:s3:::lake/topics/orders/a.json", denied["Resource"])


def test_the_table_lists_the_requests_of_the_code_and_no_other(rights: dict[str, str]) -> None:
    """A request that the code begins to send has to be added, with its right."""
    doctor = set(re.findall(r'_request\(access, "(\w+)"\)', Path(store_checks.__file__).read_text()))
    assert set(rights) == requests_of_store() | doctor


def test_what_objects_are_stored_with_needs_the_rights_of_the_page(rights: dict[str, str]) -> None:
    """By the headers of the writes with all settings, recorded, and by the request for tags that follows."""
    settings = s3.S3Settings(region="eu-central-1").for_upload(
        Upload(encryption=SseKms(key_id="alias/lake", bucket_key=True), acl="private", storage_class="STANDARD_IA")
    )
    client = s3.make_client(settings, s3.S3Credentials(access_key_id="a", secret_access_key="b"))
    sent: list[set[str]] = []

    def record(request: Any, **_: object) -> Any:
        from botocore.awsrequest import AWSResponse

        sent.append({name.lower() for name in request.headers})
        return AWSResponse(request.url, 503, {}, SimpleNamespace(stream=lambda: iter(())))

    client.meta.events.register("before-send.s3", record)
    store = s3.S3Store(client, "lake", settings)
    for write in (
        lambda: store.put_new("object", b"x", metadata={}, tags={"a": "b"}),
        lambda: store.create_upload("object", metadata={}, tags={"a": "b"}),
        lambda: store.put_new("document", b"x"),
    ):
        with pytest.raises(KafkaS3Error):
            write()
    ours = {"x-amz-acl", "x-amz-tagging", "x-amz-server-side-encryption"}
    assert [headers & ours for headers in sent] == [ours, ours, ours - {"x-amz-tagging"}]
    text = PAGE.read_text().split("\n## What objects are stored with\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| [^|]+ \| `?([\w-]+)[^|]* \| ([^|]+) \|", text, re.MULTILINE))
    by_header = {name: set(re.findall(r"`([\w:]+)`", granted)) for name, granted in rows.items() if "`" in granted}
    assert set(by_header) == {*ours, "PutObjectTagging"}
    assert by_header["PutObjectTagging"] == {rights["PutObjectTagging"]} == {TAGS}
    assert policy("What objects are stored with") == set().union(*by_header.values())


def test_partitions_are_added_with_the_rights_of_the_page() -> None:
    """An action of Glue has the name of its request."""
    sent = set(re.findall(r"self\._client\.(\w+)", Path(glue.__file__).read_text()))
    assert policy("Partitions in Glue") == {f"glue:{name.title().replace('_', '')}" for name in sent}
    assert len(sent) == 3


def test_roles_are_assumed_with_the_right_of_the_page() -> None:
    """The one request to STS that needs a right: a web identity needs none."""
    assert policy("A role of the AWS connection") == {"sts:AssumeRole"}
    text = (Path(storage.__file__).parent / "credentials.py").read_text()
    assert set(re.findall(r"client\.(\w+)\(", text)) == {"assume_role", "assume_role_with_web_identity"}
