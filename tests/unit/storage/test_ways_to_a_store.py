"""How a store is reached: proxy, acceleration, addressing, boto3's own chain of credentials, the session of a role."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_kafka_s3.config import Upload
from airflow_provider_kafka_s3.exceptions import AccessDeniedError, TransientError
from airflow_provider_kafka_s3.storage.bucket import open_bucket
from airflow_provider_kafka_s3.storage.credentials import AssumedRole, S3Secrets
from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, S3Store, make_client
from dev.certificates import Authority, server_context
from dev.forward_proxy import ForwardProxy
from dev.role_sessions import RoleSessions
from dev.s3_server import ThreadedS3Server
from dev.versitygw import VersityGateway

ANY = S3Credentials(access_key_id="any", secret_access_key="any-secret")
USER, PASSWORD = "of the tests", "p@ss:w/rd%"


@pytest.fixture(scope="module")
def proxy() -> Iterator[ForwardProxy]:
    """A proxy with a login that has to be quoted in a URL."""
    with ForwardProxy(user=USER, password=PASSWORD) as started:
        yield started


def through(proxy: ForwardProxy, password: str = PASSWORD) -> dict[str, Any]:
    """Settings of the proxy."""
    login = S3Secrets(proxy_user=USER, proxy_password=password)
    return {"proxy": proxy.address, "secrets": login, "region": "us-east-1"}


def test_requests_pass_a_proxy_with_a_login(proxy: ForwardProxy) -> None:
    """All requests of a document and an upload; a wrong password is an error that shows no login."""
    with ThreadedS3Server(buckets=["proxied"]) as server:
        settings = S3Settings(endpoint_url=server.endpoint, **through(proxy))
        store = S3Store(make_client(settings, ANY), "proxied", settings)
        store.put_new("document", b"x")
        upload = store.create_upload("object", metadata={})
        store.complete_upload("object", upload, [store.upload_part("object", upload, 1, b"y")])
        stored = store.get("object")
        assert stored is not None
        assert stored.body == b"y"
        ours = [method for method, url in proxy.seen if url.startswith(f"{server.endpoint}/proxied/")]
        assert ours == ["PUT", "POST", "PUT", "POST", "GET"]
        wrong = S3Settings(endpoint_url=server.endpoint, **through(proxy, "canary-password"))
        with pytest.raises(
            AccessDeniedError, match=r"407.*the proxy refuses the login: correct user and pass"
        ) as caught:
            S3Store(make_client(wrong, ANY), "proxied", wrong).put_new("second", b"x")
        assert "canary" not in str(caught.value)


def test_requests_over_tls_pass_a_proxy_as_a_tunnel(proxy: ForwardProxy, authority: Authority) -> None:
    """The certificate of the endpoint is checked: the proxy sees no byte of a request."""
    tls = server_context(authority.server("proxied"))
    with ThreadedS3Server(buckets=["tunnelled"], tls=tls) as server:
        settings = S3Settings(endpoint_url=server.endpoint, ca_bundle=str(authority.certificate), **through(proxy))
        store = S3Store(make_client(settings, ANY), "tunnelled", settings)
        store.put_new("document", b"x")
        assert store.head("document") is not None
        assert ("CONNECT", server.endpoint.removeprefix("https://")) in proxy.seen
        wrong = S3Settings(
            endpoint_url=server.endpoint, ca_bundle=str(authority.certificate), **through(proxy, "canary-password")
        )
        with pytest.raises(AccessDeniedError, match=r"the proxy refuses the login: correct user") as caught:
            S3Store(make_client(wrong, ANY), "tunnelled", wrong).head("document")
        assert "canary" not in str(caught.value)


def test_a_proxy_that_does_not_answer_is_a_transient_error() -> None:
    """And its password is in no message."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = S3Settings(
            endpoint_url="http://lake.invalid",
            region="us-east-1",
            proxy=f"http://127.0.0.1:{taken.getsockname()[1]}",
            secrets=S3Secrets(proxy_user="u", proxy_password="canary-password"),
        )
        with pytest.raises(TransientError) as caught:
            S3Store(make_client(settings, ANY), "lake", settings).head("x")
        assert "canary" not in str(caught.value)


def recorded(settings: S3Settings, bucket: str) -> str:
    """The URL of a request, which is answered here: there is no AWS."""
    from botocore.awsrequest import AWSResponse

    client: Any = make_client(settings, ANY)
    urls: list[str] = []

    def answer(request: Any, **_: object) -> AWSResponse:
        urls.append(request.url)
        return AWSResponse(request.url, 404, {}, SimpleNamespace(stream=lambda: iter(())))

    client.meta.events.register("before-send.s3", answer)
    assert S3Store(client, bucket, settings).head("some/key") is None
    (url,) = urls
    return url


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "https://lake.s3.eu-central-1.amazonaws.com/some/key"),
        ({"addressing_style": "path"}, "https://s3.eu-central-1.amazonaws.com/lake/some/key"),
        ({"accelerate": True}, "https://lake.s3-accelerate.amazonaws.com/some/key"),
        ({"accelerate": True, "addressing_style": "virtual"}, "https://lake.s3-accelerate.amazonaws.com/some/key"),
        ({"dualstack": True}, "https://lake.s3.dualstack.eu-central-1.amazonaws.com/some/key"),
        ({"dualstack": True, "accelerate": True}, "https://lake.s3-accelerate.dualstack.amazonaws.com/some/key"),
        ({"endpoint_url": "https://s3.example.com:9000"}, "https://s3.example.com:9000/lake/some/key"),
        (
            {"endpoint_url": "https://s3.example.com:9000", "addressing_style": "virtual"},
            "https://lake.s3.example.com:9000/some/key",
        ),
        (
            {"endpoint_url": "https://s3.example.com:9000", "addressing_style": "path"},
            "https://s3.example.com:9000/lake/some/key",
        ),
    ],
)
def test_the_address_of_an_object_follows_from_the_settings(settings: dict[str, Any], url: str) -> None:
    """Of AWS, of its accelerated endpoints and of another server."""
    assert recorded(S3Settings(region="eu-central-1", **settings), "lake") == url


def test_a_server_is_used_with_virtual_addressing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bucket is a host below the domain of the server."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        if str(host).endswith("s3.test"):
            asked.append(host)
            host = "127.0.0.1"
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    login = {"access_key_id": ANY.access_key_id, "secret_access_key": ANY.secret_access_key}
    with VersityGateway(domain="s3.test", **login) as server:
        endpoint = server.endpoint.replace("127.0.0.1", "s3.test")
        settings = S3Settings(endpoint_url=endpoint, region="us-east-1", addressing_style="virtual")
        client = make_client(settings, ANY)
        client.create_bucket(Bucket="lake")
        store = S3Store(client, "lake", settings)
        store.put_new("a/document", b"x")
        stored = store.get("a/document")
        assert stored is not None
        assert stored.body == b"x"
        assert [info.key for info in store.list("a/")] == ["a/document"]
    assert set(asked) == {"lake.s3.test"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[VersityGateway]:
    """A server that checks signatures."""
    with VersityGateway(access_key_id="AKIACHAIN", secret_access_key="secret-of-the-chain") as server:
        settings = S3Settings(endpoint_url=server.endpoint, region="us-east-1", addressing_style="path")
        made = S3Credentials(access_key_id="AKIACHAIN", secret_access_key="secret-of-the-chain")
        make_client(settings, made).create_bucket(Bucket="lake")
        yield server


@pytest.mark.parametrize("source", ["environment", "profile", "process"])
def test_the_credentials_are_those_of_boto3_s_own_chain(
    gateway: VersityGateway, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    """Of the environment, of a profile in a file, of another program; the server checks the signatures."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    match source:
        case "environment":
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIACHAIN")
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-chain")
        case "profile":
            monkeypatch.setenv("AWS_PROFILE", "lake")
            (tmp_path / "credentials").write_text(
                "[lake]\naws_access_key_id = AKIACHAIN\naws_secret_access_key = secret-of-the-chain\n"
            )
        case "process":
            answer = {"Version": 1, "AccessKeyId": "AKIACHAIN", "SecretAccessKey": "secret-of-the-chain"}
            (tmp_path / "answer.json").write_text(json.dumps(answer))
            program = f"print(open('{tmp_path / 'answer.json'}').read())"
            (tmp_path / "config").write_text(f'[default]\ncredential_process = {sys.executable} -c "{program}"\n')
    settings = S3Settings(endpoint_url=gateway.endpoint, region="us-east-1", addressing_style="path")
    store = open_bucket("lake", settings.for_upload(Upload()), None)
    assert store.create(f"of-{source}", b"x") == b"x"


def test_a_role_is_assumed_through_the_proxy_with_external_id_name_and_duration(proxy: ForwardProxy) -> None:
    """The request to STS passes the same proxy as those to the store."""
    gates: list[RoleSessions] = []

    def middleware(application: Any) -> RoleSessions:
        gates.append(RoleSessions(application, trusted=["AKIABASE"]))
        return gates[0]

    with ThreadedS3Server(buckets=["of-a-role"], middleware=middleware) as server:
        arguments = {"ExternalId": "partner-7", "DurationSeconds": 900, "RoleSessionName": "landing"}
        role = AssumedRole(
            arn="arn:aws:iam::123456789012:role/lake",
            session_name="Airflow_aws_x",
            arguments=json.dumps(arguments),
            base=S3Credentials(access_key_id="AKIABASE", secret_access_key="x"),
            sts_endpoint=server.endpoint,
        )
        stale = S3Credentials(access_key_id="ASIASTALE", secret_access_key="x", expires_at=1.0, role=role)
        settings = S3Settings(endpoint_url=server.endpoint, **through(proxy))
        assert open_bucket("of-a-role", settings, stale).create("document", b"x") == b"x"
        assert ("POST", f"{server.endpoint}/") in proxy.seen
    (form,) = gates[0].given
    sent = {name: form[name] for name in ("ExternalId", "DurationSeconds", "RoleSessionName")}
    assert sent == {"ExternalId": "partner-7", "DurationSeconds": "900", "RoleSessionName": "landing"}
