"""A real schema registry for tests: Apicurio, which has Confluent's API below ``/apis/ccompat/v7``.

``with SchemaRegistry() as registry:`` starts one from ``.build/registry`` (``make registry`` puts it there) on a free
loopback port. It keeps its schemas in memory, and lives no longer than the process that started it, however that ends.
"""

from __future__ import annotations

import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from dev.certificates import Authority
from dev.java import find_java
from dev.ports import HOST, free_ports, listens
from dev.supervisor import SupervisedServer
from dev.waiting import wait_for_start

__all__ = ["REGISTRY", "SchemaRegistry"]

REGISTRY: Final = Path(__file__).resolve().parents[1] / ".build" / "registry"

_API: Final = "/apis/ccompat/v7"
_TIMEOUT: Final = 30.0


class SchemaRegistry(SupervisedServer):
    """A schema registry in a process group of its own, whose id is :attr:`pid`.

    Like Confluent's it demands that a new version of a schema is backward compatible.

    :meth:`start` returns when the API answers. It raises a ``RuntimeError`` if there is no registry in ``folder``, or,
    with the end of the log, if the process ends or does not answer.

    Args:
        users: names and passwords; if there are any, requests need one of them, by basic authentication.
        authority: if there is one, the registry speaks TLS alone, with a certificate that it issues.
        heap: size of the Java heap, as in ``-Xmx``.
        folder: where the registry is.
    """

    _NAME = "schema-registry"

    def __init__(
        self,
        *,
        users: Mapping[str, str] | None = None,
        authority: Authority | None = None,
        heap: str = "256m",
        folder: Path = REGISTRY,
    ) -> None:
        self._users = dict(users or {})
        self._authority = authority
        self._heap = heap
        self._folder = folder
        self._port = 0

    @property
    def url(self) -> str:
        """Address of the API, known after :meth:`start`."""
        return f"{'http' if self._authority is None else 'https'}://{HOST}:{self._port}{_API}"

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: Sequence[Mapping[str, Any]] = ()
    ) -> int:
        """Register a schema, and return its id.

        Args:
            subject: that gets a new version.
            text: of the schema.
            kind: ``AVRO``, ``JSON`` or ``PROTOBUF``.
            references: ``name``, ``subject`` and ``version`` of each schema that it refers to.
        """
        body = {"schema": text, "schemaType": kind, "references": list(references)}
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"
        return int(self.request("POST", path, body).raise_for_status().json()["id"])

    def request(self, method: str, path: str, body: object = None) -> httpx.Response:
        """The answer to a request to the API, with the login of the first user."""
        login = next(iter(self._users.items()), None)
        with httpx.Client(verify=self._context(), auth=login, trust_env=False, timeout=_TIMEOUT) as client:
            return client.request(method, f"{self.url}{path}", json=body)

    def restart(self) -> None:
        """Start a registry that was killed again, on the same port, without its schemas."""
        self._spawn()

    def _start(self) -> None:
        if not any(self._folder.glob("*-runner.jar")):
            raise RuntimeError(f"there is no schema registry in {self._folder}: run make registry")
        (self._port,) = free_ports(1)
        # Quarkus reads this file in the working directory; passwords on the command line would be seen by everybody.
        config = self._make_directory() / "config" / "application.properties"
        config.parent.mkdir()
        config.touch(mode=0o600)
        config.write_text("".join(f"{name}={_escaped(v)}\n" for name, v in self._settings().items()), encoding="utf-8")
        self._spawn()

    def _spawn(self) -> None:
        (runner,) = self._folder.glob("*-runner.jar")
        java = [find_java(), f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        process = self._run([*java, "-jar", str(runner.resolve())])
        wait_for_start(
            f"the schema registry at {self.url}",
            self._answers,
            [process],
            timeout=120,
            log=self.last_lines,
            interval=0.1,
        )

    def _settings(self) -> dict[str, str]:
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(self._port),
            # A schema that differs in white space only keeps its id, as in Confluent's registry.
            "apicurio.ccompat.use-canonical-hash": "true",
        }
        if self._authority is not None:
            certificate = self._authority.server("registry")
            settings |= {
                "quarkus.http.ssl-port": str(self._port),
                "quarkus.http.insecure-requests": "disabled",
                "quarkus.http.ssl.certificate.files": str(certificate.certificate),
                "quarkus.http.ssl.certificate.key-files": str(certificate.key),
            }
        if self._users:
            settings |= {
                "quarkus.http.auth.basic": "true",
                "quarkus.security.users.embedded.enabled": "true",
                "quarkus.security.users.embedded.plain-text": "true",
                "quarkus.http.auth.permission.api.paths": "/apis/*",
                "quarkus.http.auth.permission.api.policy": "authenticated",
            }
            settings |= {f"quarkus.security.users.embedded.users.{name}": word for name, word in self._users.items()}
        return settings

    def _answers(self) -> bool:
        # Global rules are in the storage, so this also shows that it is ready.
        if not listens(self._port):
            return False
        try:
            return self.request("PUT", "/config", {"compatibility": "BACKWARD"}).is_success
        except httpx.TransportError:
            return False

    def _context(self) -> ssl.SSLContext | bool:
        if self._authority is None:
            return False
        return ssl.create_default_context(cafile=self._authority.certificate)


def _escaped(value: str) -> str:
    """A value of a properties file; Quarkus expands ``${…}`` in it."""
    return value.replace("\\", "\\\\").replace("$", "\\\\$")
