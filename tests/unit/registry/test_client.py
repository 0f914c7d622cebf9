"""The client of schema registries: what it reads, and that a registry in trouble decides nothing."""

from __future__ import annotations

import base64
import pickle
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_kafka_s3.exceptions import (
    AccessDeniedError,
    ConfigurationError,
    RecordError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    message_of,
)
from airflow_provider_kafka_s3.registry import client as client_module
from airflow_provider_kafka_s3.registry.client import RegistryClient
from airflow_provider_kafka_s3.registry.schemas import RegisteredSchema, SchemaReference
from airflow_provider_kafka_s3.registry.settings import RegistrySettings
from airflow_provider_kafka_s3.retry import Retrier, RetryDetails, RetryPolicy
from dev.certificates import Authority, server_context
from dev.ports import free_ports
from tests.unit.registry.conftest import SCHEMA_GONE, Registry

CANARY = "canary-51d0"
RETRIES = 2


class Tries:
    """A retrier that does not wait, and what it did.

    Attributes:
        waits: seconds that it would have waited.
        retries: what was tried again.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.retries: list[RetryDetails] = []
        policy = RetryPolicy(max_retries=RETRIES, throttle_deadline=60)
        self.retrier = Retrier(policy, sleep=self._sleep, monotonic=lambda: self.now, on_retry=self.retries.append)

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def tries() -> Tries:
    """Tries of one test."""
    return Tries()


@pytest.fixture
def refusing() -> str:
    """An address that nobody listens at."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def client(tries: Tries, *urls: str, **more: Any) -> RegistryClient:
    """A client of these addresses."""
    return RegistryClient(RegistrySettings(urls=urls, **more), tries.retrier)


def test_a_schema_comes_with_its_type_and_the_highest_version_of_each_subject(registry: Registry, tries: Tries) -> None:
    """A schema without a type is one of Avro."""
    registry.add(3, '"string"', "a-value", 2)
    registry.add(3, '"string"', "b-value", 7)
    registry.add(3, '"string"', "a-value", 4)
    registry.add(3, '"string"', "a-value", 3)
    assert client(tries, registry.endpoint).schema(3) == RegisteredSchema(
        id=3, type="AVRO", text='"string"', versions={"a-value": 4, "b-value": 7}
    )


def test_references_are_resolved_each_once_and_before_those_that_need_them(registry: Registry, tries: Tries) -> None:
    """Diamonds and circles end; names of subjects may hold any characters; versions that were deleted softly count."""

    def refers(*names: str) -> dict[str, Any]:
        return {"references": [{"name": n, "subject": f"s/{n} ü", "version": 1} for n in names]}

    registry.add(1, "top", "t", schemaType="PROTOBUF", **refers("left", "right"))
    registry.add(2, "left", "s/left ü", **refers("base"))
    registry.add(4, "right", "s/right ü", **refers("base", "left", "right"))
    registry.add(5, "base", "s/base ü", **refers("left"))
    found = client(tries, registry.endpoint).schema(1)
    assert found.type == "PROTOBUF"
    assert found.references == tuple(
        SchemaReference(name=name, subject=f"s/{name} ü", version=1, text=name) for name in ("base", "left", "right")
    )
    assert sum(path.startswith("/subjects/") for path in registry.paths) == 3
    assert "/subjects/s%2Fbase%20%C3%BC/versions/1?deleted=true" in registry.paths


def test_the_latest_schema_of_a_subject(registry: Registry, tries: Tries) -> None:
    """By its id, so that it is the same as that of the records; None for a subject that is not there."""
    registry.add(3, "1", "t-value", 1)
    registry.add(5, "2", "t-value", 2)
    registry_client = client(tries, registry.endpoint)
    assert registry_client.latest("t-value") == registry_client.schema(5)
    assert registry_client.latest("absent") is None


@pytest.mark.parametrize("schema_id", [0, 9, 2**31 - 1, -1, -(2**31), 2**40])
def test_an_id_that_the_registry_does_not_have_is_an_error_of_the_record(
    registry: Registry, tries: Tries, schema_id: int
) -> None:
    """It is not tried again. Ids that no registry gives are not asked for."""
    with pytest.raises(SchemaNotFoundError, match=rf"schema {schema_id} is not in the schema registry at http"):
        client(tries, registry.endpoint).schema(schema_id)
    assert (tries.retries, len(registry.requests)) == ([], 1 if 0 <= schema_id < 2**31 else 0)


def test_a_reference_that_is_gone_is_an_error_of_the_record(registry: Registry, tries: Tries) -> None:
    """It names the subject and the version."""
    registry.add(1, "x", references=[{"name": "Y", "subject": "y", "version": 3}])
    with pytest.raises(SchemaNotFoundError, match=r"schema 1 .* refers to version 3 of the subject 'y'"):
        client(tries, registry.endpoint).schema(1)


def test_a_type_that_is_not_supported_is_an_error_of_the_record(registry: Registry, tries: Tries) -> None:
    """Registries can have plug-ins for more types."""
    registry.add(1, "x", schemaType="XML")
    with pytest.raises(RecordError, match=r"type 'XML'.*'AVRO', 'JSON' or 'PROTOBUF'"):
        client(tries, registry.endpoint).schema(1)


def test_a_schema_with_endless_references_is_refused(
    registry: Registry, tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can neither fill the memory nor go on for ever."""
    monkeypatch.setattr(client_module, "_MAX_REFERENCES", 10)
    for n in range(20):
        registry.add(n, "x", f"s{n}", references=[{"name": f"n{n + 1}", "subject": f"s{n + 1}", "version": 1}])
    with pytest.raises(RecordError, match=r"schema 0 .* refers to more than 10 others"):
        client(tries, registry.endpoint).schema(0)


@pytest.mark.parametrize(
    "failure",
    [
        (500, b""),
        (502, b"<html>Bad Gateway</html>"),
        (503, {"error_code": 50003, "message": "Error while forwarding the request"}),
        (401, {"error_code": 401, "message": "Unauthorized"}),
        (403, {"error_code": 40301, "message": "forbidden"}),
        (429, b""),
        # What an ingress, a login page or another server says, or a registry whose API is below a path.
        (404, b"default backend - 404"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
        (302, b"", {"Location": "https://login.example.com/"}),
        (200, b"<html>Sign in</html>"),
        (200, b'{"other": 1}'),
        (200, b"[" * 100_000),
        (200, b'{"schema": "\\ud800"}'),
        (204, b""),
    ],
)
def test_what_is_no_answer_of_a_registry_is_asked_again(
    registry: Registry, tries: Tries, failure: tuple[Any, ...]
) -> None:
    """Then the answer comes."""
    registry.add(3, "x")
    registry.failures = [failure]
    assert client(tries, registry.endpoint).schema(3).text == "x"
    assert len(tries.retries) == 1


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        ((500, {"error_code": 50001, "message": "store error"}), RegistryUnavailableError, "500: 'store error'"),
        ((404, b"nginx"), RegistryUnavailableError, r"below a path, such as /apis/ccompat/v7"),
        ((302, b""), RegistryUnavailableError, r"status 302; check the address"),
        ((200, b"nonsense"), RegistryUnavailableError, "something that no schema registry returns"),
        ((401, b""), AccessDeniedError, "status 401; check the credentials"),
        ((403, {"error_code": 40301, "message": "x" * 10_000}), AccessDeniedError, "status 403: 'x{200}'; check"),
    ],
)
def test_a_registry_that_stays_in_trouble_is_never_one_without_the_schema(
    registry: Registry, tries: Tries, failure: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    """After the last try it is an error of the task, and the message has address, status and the number of tries."""
    registry.failures = [failure] * 10
    with pytest.raises(kind, match=message) as error:
        client(tries, registry.endpoint).schema(3)
    assert registry.endpoint in str(error.value)
    assert f"{RETRIES + 1} tries" in message_of(error.value)
    assert len(tries.retries) == RETRIES
    if isinstance(error.value, RegistryUnavailableError):
        assert not error.value.repeatable


def test_a_registry_that_limits_requests_is_asked_at_the_pace_that_it_sets(registry: Registry, tries: Tries) -> None:
    """More often than others, until the deadline."""
    registry.add(3, "x")
    registry.failures = [(429, b"", {"Retry-After": "7"})] * (RETRIES + 2)
    assert client(tries, registry.endpoint).schema(3).text == "x"
    assert all(wait >= 7 for wait in tries.waits)
    assert len(tries.waits) == RETRIES + 2
    registry.failures = [(429, b"", {"Retry-After": "7"})] * 100
    with pytest.raises(RegistryUnavailableError, match="status 429"):
        client(tries, registry.endpoint).schema(3)


def test_the_next_address_is_asked_when_one_does_not_answer(
    make_registry: Callable[[], Registry], tries: Tries, refusing: str, silent: str
) -> None:
    """Without a retry; the one that answered is asked first from then on."""
    broken, good = make_registry(), make_registry()
    good.add(3, "x")
    broken.failures = [(500, b"")] * 10
    several = client(tries, refusing, silent, broken.endpoint, good.endpoint, timeout=2)
    assert several.schema(3).text == "x"
    assert several.schema(3).text == "x"
    assert (len(broken.requests), len(good.requests), tries.retries) == (1, 4, [])
    good.failures = [(500, b"")]
    broken.failures = []
    with pytest.raises(SchemaNotFoundError):
        several.schema(3)


@pytest.mark.parametrize("address", ["refusing", "silent"])
def test_a_registry_that_does_not_answer_is_unavailable(
    request: pytest.FixtureRequest, tries: Tries, address: str
) -> None:
    """Soon: the timeout is that of the settings."""
    url = request.getfixturevalue(address)
    started = time.monotonic()
    with pytest.raises(RegistryUnavailableError, match=rf"{url} does not answer \((ConnectionRefused|Timeout)Error"):
        client(tries, url, timeout=0.1).schema(3)
    assert len(tries.retries) == RETRIES
    assert time.monotonic() - started < 10


def test_a_name_that_cannot_be_resolved_is_unavailable(tries: Tries) -> None:
    """Name servers fail, too; a label that no name may have does no harm."""
    for host in ("no-such-host.invalid", "a..b"):
        with pytest.raises(RegistryUnavailableError, match=f"{host} does not answer"):
            client(tries, f"http://{host}", timeout=1).schema(3)


def test_a_response_that_is_cut_off_or_too_long_is_asked_again(
    registry: Registry, tries: Tries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of a schema is taken for a schema."""
    registry.add(3, "x")
    registry.failures = [(200, b'{"schema": "x"')]
    assert client(tries, registry.endpoint).schema(3).text == "x"
    monkeypatch.setattr(client_module, "_MAX_BYTES", 100)
    registry.add(4, "x" * 200)
    with pytest.raises(RegistryUnavailableError):
        client(tries, registry.endpoint).schema(4)


@pytest.mark.parametrize(
    ("login", "header"),
    [
        ({}, None),
        ({"user": "ü", "password": "p:w"}, f"Basic {base64.b64encode('ü:p:w'.encode()).decode()}"),
        ({"bearer_token": "abc.def"}, "Bearer abc.def"),
    ],
)
def test_every_request_logs_in(registry: Registry, tries: Tries, login: dict[str, str], header: str | None) -> None:
    """By user and password, by a token, or not at all; addresses may have a path."""
    registry.answers = {
        "/api/schemas/ids/3": {"schema": "x", "schemaType": None, "references": None},
        "/api/schemas/ids/3/versions": [],
    }
    assert client(tries, f"{registry.endpoint}/api/", **login).schema(3).versions == {}
    assert registry.requests == [("/api/schemas/ids/3", header), ("/api/schemas/ids/3/versions", header)]


def test_versions_that_the_registry_does_not_list_are_none(registry: Registry, tries: Tries) -> None:
    """All versions of the schema were deleted, and records still have its id."""
    registry.answers = {"/schemas/ids/3": {"schema": "x"}}
    assert client(tries, registry.endpoint).schema(3).versions == {}
    registry.failures = [(200, {"schema": "x"}), SCHEMA_GONE]
    assert client(tries, registry.endpoint).schema(3).text == "x"


def test_tls_needs_a_trusted_certificate_and_shows_that_of_the_client(tmp_path: Path, tries: Tries) -> None:
    """An unknown authority is a wrong setting; a client without its certificate gets no answer."""
    authority = Authority(tmp_path / "ca")
    own = authority.client(password=CANARY)
    ca = authority.certificate_pem
    shown = {"certificate": own.certificate_pem, "key": own.key_pem, "key_password": CANARY}
    with Registry(tls=server_context(authority.server(), clients=authority)) as registry:
        registry.add(3, "x")
        assert client(tries, registry.endpoint, ca=ca, **shown).schema(3).text == "x"
        with pytest.raises(RegistryUnavailableError):
            client(tries, registry.endpoint, ca=ca).schema(3)
        with pytest.raises(ConfigurationError, match="is not trusted") as untrusted:
            client(tries, registry.endpoint, **shown).schema(3)
        assert f"{RETRIES + 1} tries" in message_of(untrusted.value)
    assert list(Path(tmp_path).glob("*.pem")) == []


def test_the_key_of_a_client_is_in_no_file_that_could_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is loaded, there is nothing of it that the end of the process would leave."""
    own = Authority(tmp_path / "own").client(password=CANARY)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    seen: list[Path | None] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(*arguments: Any) -> None:
        seen.extend([None, *folder.iterdir()])
        load(*arguments)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    shown = {"certificate": own.certificate_pem, "key": own.key_pem, "key_password": CANARY}
    RegistrySettings(urls=("https://registry",), **shown).tls_context()
    assert seen == [None]


@pytest.mark.parametrize("wrong", [{"ca": "no PEM"}, {"ca": ""}, {"certificate": "no PEM", "key": CANARY}])
def test_certificates_that_cannot_be_used_are_named_without_quoting_them(tries: Tries, wrong: dict[str, str]) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match="PEM form") as error:
        client(tries, "https://registry", **wrong)
    assert CANARY not in message_of(error.value)


def test_an_encrypted_key_needs_its_password(tmp_path: Path, tries: Tries) -> None:
    """OpenSSL does not ask for it at a terminal."""
    own = Authority(tmp_path).client(password=CANARY)
    with pytest.raises(ConfigurationError, match="key_password if the key is encrypted"):
        client(tries, "https://registry", certificate=own.certificate_pem, key=own.key_pem)


def test_settings_show_no_secrets_and_can_be_sent_to_executors() -> None:
    """Whatever logs them."""
    settings = RegistrySettings(urls=("http://registry:8081",), user="u", password=CANARY, certificate="c", key=CANARY)
    assert f"{settings} {settings!r} {[settings]}".count("REDACTED") == 3
    assert CANARY not in f"{settings} {settings!r}"
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"urls": ()}, "needs an address"),
        ({"urls": ("registry:8081",)}, "must begin with http"),
        ({"urls": ("ftp://registry",)}, "must begin with http"),
        ({"urls": ("http://",)}, "must begin with http"),
        ({"urls": ("http://registry:port",)}, "must begin with http"),
        ({"urls": ("http://registry:99999",)}, "must begin with http"),
        ({"urls": ("http://[::1",)}, "must begin with http"),
        ({"urls": ("http://registry/a b",)}, "must begin with http"),
        ({"urls": ("http://registry/\nHost: x",)}, "must begin with http"),
        ({"urls": ("http://registry?x=1",)}, "must begin with http"),
        ({"urls": (f"http://u:{CANARY}@registry",)}, "contains credentials"),
        ({"user": "u"}, "give both or neither"),
        ({"password": CANARY}, "give both or neither"),
        ({"user": "u", "password": CANARY, "bearer_token": "t"}, "give one"),
        ({"bearer_token": f"{CANARY}\r\nX: y"}, "no HTTP header may contain"),
        ({"key": CANARY}, "needs its certificate"),
        ({"timeout": 0.0}, "must be positive"),
        ({"timeout": float("nan")}, "must be positive"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any], message: str) -> None:
    """With the way out, and without quoting secrets."""
    with pytest.raises(ConfigurationError, match=message) as error:
        RegistrySettings(**{"urls": ("http://registry",), **given})
    assert CANARY not in str(error.value)
