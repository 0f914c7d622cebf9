"""Two S3 servers, each behind a faulty proxy, with and without TLS; started once and only when used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_provider_kafka_s3.storage.s3 import S3Credentials, S3Settings, make_client
from dev.certificates import Authority
from dev.fault_proxy import FaultProxy
from dev.s3_server import S3Server
from dev.versitygw import VersityGateway
from tests.faults.process import Process, Topic

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "lake"
LOGIN = S3Credentials(access_key_id="reader", secret_access_key="canary-of-the-secret-key")


@dataclass
class Site:
    """A server, the proxy in front of it, and clients of both.

    Attributes:
        server: its name.
        proxy: its rules and calls are cleared before every test.
        direct: a client that does not go through the proxy.
        proxied: a client that goes through the proxy.
        hasty: the same, with a read timeout of half a second.
    """

    server: str
    proxy: FaultProxy
    direct: S3Client
    proxied: S3Client
    hasty: S3Client

    def process(self, topic: Topic, *, hasty: bool = False, **how: object) -> Process:
        """A process behind the proxy."""
        return Process(self.hasty if hasty else self.proxied, BUCKET, topic, **how)  # type: ignore[arg-type]

    def observer(self, topic: Topic) -> Process:
        """A process without the proxy."""
        return Process(self.direct, BUCKET, topic)


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority of the proxies."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="package")
def site_of(authority: Authority) -> Iterator[Callable[[str, str], Site]]:
    """Start a site once: ``site_of("versitygw", "https")``."""
    with contextlib.ExitStack() as stack:
        servers: dict[str, str] = {}
        sites: dict[tuple[str, str], Site] = {}
        tls = authority.server()

        def client(endpoint: str, read_timeout: float = 60.0) -> S3Client:
            made = make_client(
                S3Settings(
                    endpoint_url=endpoint,
                    region="us-east-1",
                    addressing_style="path",
                    ca_bundle=str(authority.certificate),
                    read_timeout=read_timeout,
                ),
                LOGIN,
            )
            stack.callback(made.close)
            return made

        def get(server: str, scheme: str) -> Site:
            if server not in servers:
                login = {"access_key_id": LOGIN.access_key_id, "secret_access_key": LOGIN.secret_access_key}
                started = stack.enter_context(S3Server() if server == "moto" else VersityGateway(**login))
                servers[server] = started.endpoint
                client(started.endpoint).create_bucket(Bucket=BUCKET)
            if (server, scheme) not in sites:
                endpoint = servers[server]
                proxy = stack.enter_context(FaultProxy(endpoint, tls=tls if scheme == "https" else None))
                sites[server, scheme] = Site(
                    server, proxy, client(endpoint), client(proxy.endpoint), client(proxy.endpoint, 0.5)
                )
            return sites[server, scheme]

        yield get


@pytest.fixture(params=["versitygw-http"])
def site(request: pytest.FixtureRequest, site_of: Callable[[str, str], Site]) -> Iterator[Site]:
    """The site in the test's parameter."""
    server, scheme = str(request.param).split("-")
    found = site_of(server, scheme)
    found.proxy.clear()
    yield found
    found.proxy.clear()
