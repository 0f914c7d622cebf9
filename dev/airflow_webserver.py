"""The web server of an Airflow 2.11 on loopback, with one user."""

from __future__ import annotations

import secrets
import subprocess
import sys
from typing import Final

import httpx

from dev.airflow_home import AirflowHome
from dev.ports import HOST, free_ports
from dev.supervisor import Startable, end
from dev.waiting import wait_for_start

__all__ = ["PASSWORD", "USER", "AirflowWebServer"]

USER: Final = "admin"
PASSWORD: Final = "admin-of-tests"


class AirflowWebServer(Startable):
    """Gunicorn with one process; the user is an administrator.

    Attributes:
        url: without a slash at the end; known after :meth:`start`.
    """

    def __init__(self, home: AirflowHome) -> None:
        """Describe it; :meth:`start` takes about 15 seconds.

        It raises a ``RuntimeError`` with the end of the log if the server ends or is not ready in time.

        Args:
            home: migrated already, with this user after the first start.
        """
        self.url = ""
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def _start(self) -> None:
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        environment = {
            **self._home.environment,
            "AIRFLOW__WEBSERVER__BASE_URL": self.url,
            "AIRFLOW__WEBSERVER__SECRET_KEY": secrets.token_hex(),
        }
        person = ["--firstname", "A", "--lastname", "B", "--email", "admin@example.com"]
        created, output = self._home.run(
            ["users", "create", "--username", USER, "--password", PASSWORD, "--role", "Admin", *person],
            environment=environment,
        )
        if created:
            raise RuntimeError(f"the user could not be made:\n{output[-4_000:]}")
        log = self._home.folder / "webserver.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "webserver", "-H", HOST, "-p", str(port), "-w", "1"],
                cwd=self._home.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for_start(
            "Airflow's web server",
            self._is_ready,
            [self._process],
            timeout=300,
            log=lambda: log.read_text(errors="replace")[-4_000:],
            interval=0.2,
        )

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        """Stop it."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
