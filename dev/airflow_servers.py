"""The servers of an Airflow 3 on loopback: API server with the UI, scheduler, DAG processor; and a client of their API.

They are started piece by piece, because ``airflow standalone`` opens log servers on all of the machine's addresses. The
executor is the local one: tasks are processes of the scheduler.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from tenacity import retry, retry_if_exception_message, stop_after_attempt, wait_fixed

from dev.airflow_home import AirflowHome
from dev.ports import HOST, free_ports
from dev.supervisor import Startable
from dev.waiting import wait_for_start, wait_until

__all__ = ["AirflowServers", "ApiError"]

_ENDED: Final = ("success", "failed")
# Seconds. Each answer takes the API server tens of milliseconds, which the tasks that are waited for lack.
_POLL_INTERVAL: Final = 0.5

_SETTINGS: Final = {
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    # Number of idle workers that are forked at once; the default is 32.
    "AIRFLOW__CORE__PARALLELISM": "4",
    # Every client of the loopback address is an administrator, without a login.
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    # The files do not change while the servers run, and parsing them again and again costs a core.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
    # Seconds between two heartbeats of a task: the time until it detects that it was stopped.
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    # Seconds that Airflow waits for the children of a killed task before it begins the next try.
    "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "1",
    # A response that the database is locked has these words.
    "AIRFLOW__API__EXPOSE_STACKTRACE": "True",
    # Seconds between two refreshes of the UI.
    "AIRFLOW__API__AUTO_REFRESH_INTERVAL": "1",
}


# SQLite has one writer at a time: a command or the API may give up at once while the scheduler writes.
_try_again: Final = retry(
    stop=stop_after_attempt(5),
    wait=wait_fixed(1),
    retry=retry_if_exception_message(match="(?is).*database is locked"),
    reraise=True,
)


class ApiError(Exception):
    """Airflow's API refused a request.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AirflowServers(Startable):
    """API server, scheduler and DAG processor of an :class:`~dev.airflow_home.AirflowHome`.

    Attributes:
        url: of the UI, without a slash at the end; known after :meth:`start`.
        home: whose database and folders they use.
    """

    def __init__(self, home: AirflowHome) -> None:
        """Describe them; :meth:`start` takes about 20 seconds.

        It raises a ``RuntimeError`` with the ends of the logs if a server ends or they are not healthy in time.

        Args:
            home: migrated already.
        """
        self.home = home
        self.url = ""
        self._environment: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # Every request has a connection of its own: the server closes idle ones.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=60, limits=limits, trust_env=False, follow_redirects=True)

    # -- the processes ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        self._environment = {
            **self.home.environment,
            **_SETTINGS,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__API__BASE_URL": f"{self.url}/",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(),
        }
        self._client.base_url = httpx.URL(self.url)
        self._launch("api-server", "--host", HOST, "--port", str(port), "--workers", "1")
        self._launch("scheduler", "--skip-serve-logs")
        self._launch("dag-processor")
        wait_for_start(
            "Airflow",
            self._is_healthy,
            self._processes.values(),
            timeout=600,
            log=lambda: "\n".join(f"{name}:\n{self.log(name)[-4_000:]}" for name in self._processes),
            interval=0.1,
        )
        self._client.headers["Authorization"] = f"Bearer {self._request('GET', '/auth/token')['access_token']}"

    @property
    def running(self) -> bool:
        """Whether they were started, and not stopped since."""
        return bool(self._processes)

    def process_id(self, name: str) -> int:
        """Process id of ``"api-server"``, ``"scheduler"`` or ``"dag-processor"``; tasks descend from the scheduler."""
        return self._processes[name].pid

    def log(self, name: str) -> str:
        """The output of one of them so far."""
        return self._log_file(name).read_text(errors="replace")

    def _log_file(self, name: str) -> Path:
        return self.home.folder / f"{name}.log"

    def _launch(self, name: str, *arguments: str) -> None:
        with self._log_file(name).open("wb") as log:
            # A process group of its own, so that its children can be ended with it: Airflow leaves some behind.
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "airflow", name, *arguments],
                cwd=self.home.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _is_healthy(self) -> bool:
        try:
            health = self._request("GET", "/api/v2/monitor/health")
        except (ApiError, httpx.TransportError):
            return False
        return all((health.get(part) or {}).get("status") == "healthy" for part in ("scheduler", "dag_processor"))

    def stop(self) -> None:
        """Stop them, and every task that still runs."""
        # Some of them have sessions of their own, so that ending the groups is not enough.
        family = [
            child
            for process in self._processes.values()
            if process.poll() is None
            for child in psutil.Process(process.pid).children(recursive=True)
        ]
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._processes.clear()

    # -- the command line ---------------------------------------------------------------------------------------------

    @_try_again
    def command(self, *arguments: str) -> str:
        """Run ``airflow`` with arguments and return its output.

        Raises:
            RuntimeError: it failed; with the end of its output.
        """
        return self._command(*arguments)

    def _command(self, *arguments: str) -> str:
        status, output = self.home.run(list(arguments), environment=self._environment)
        if status:
            raise RuntimeError(f"airflow {' '.join(arguments)} failed:\n{output[-6000:]}")
        return output

    # -- the API ------------------------------------------------------------------------------------------------------

    @_try_again
    def api(self, method: str, path: str, body: Mapping[str, Any] | None = None, **query: Any) -> Any:
        """Call the REST API, such as ``api("GET", "/dags", limit=5)``, and return the response.

        Args:
            method: of HTTP.
            path: below ``/api/v2``; its parts are quoted by :func:`urllib.parse.quote` if need be.
            body: sent as JSON.
            query: parameters.

        Raises:
            ApiError: the response is an error; the message contains its text.
        """
        return self._request(method, f"/api/v2{path}", body, query)

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, Any] | None = None
    ) -> Any:
        response = self._client.request(method, path, json=body, params=query)
        if not response.is_success:
            raise ApiError(response.status_code, f"{method} {path}: {response.status_code} {response.text[:2000]}")
        return response.json() if response.content else None

    # -- DAGs and runs ------------------------------------------------------------------------------------------------

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until the file of a DAG has been parsed."""

        def parsed() -> bool:
            with contextlib.suppress(ApiError):
                self.api("GET", f"/dags/{dag_id}")
                return True
            return False

        wait_until(parsed, f"DAG {dag_id} to be parsed", timeout=600, interval=_POLL_INTERVAL)

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG when its file has been parsed."""
        self.wait_for_dag(dag_id)
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, **body: Any) -> str:
        """Create a DAG run and return its id; ``body`` as in the API: ``conf``, ``logical_date``, ``dag_run_id``."""
        run: dict[str, Any] = self.api("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None, **body})
        return str(run["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of a DAG, as the API returns them, oldest interval first."""
        found: list[dict[str, Any]] = self.api("GET", f"/dags/{dag_id}/dagRuns", order_by="run_after")["dag_runs"]
        return found

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """A DAG run, as the API returns it."""
        found: dict[str, Any] = self.api("GET", f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}")
        return found

    def wait_for_run(self, dag_id: str, run_id: str, *, timeout: float = 600.0) -> str:
        """The state in which a run ends: ``success`` or ``failed``."""
        return str(
            wait_until(
                lambda: (state := self.run(dag_id, run_id)["state"]) in _ENDED and state,
                f"run {run_id} of DAG {dag_id} to end",
                timeout=timeout,
                interval=_POLL_INTERVAL,
            )
        )

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """A task instance, as the API returns it."""
        quoted = urllib.parse.quote(run_id)
        found: dict[str, Any] = self.api("GET", f"/dags/{dag_id}/dagRuns/{quoted}/taskInstances/{task_id}")
        return found

    def returned(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """The return value of a task, from its XCom; None if there is none."""
        path = f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id)}/taskInstances/{task_id}/xcomEntries/return_value"
        try:
            return self.api("GET", path, deserialize="false", stringify="false")["value"]
        except ApiError as e:
            if e.status == 404:
                return None
            raise

    def task_log(self, dag_id: str, run_id: str, task_id: str, attempt: int = 1) -> str:
        """The log of a try, as stored on disk: JSON lines. Empty while there is none."""
        folder = self.home.folder / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        file = folder / f"attempt={attempt}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def backfill(self, dag_id: str, first: str, last: str, *arguments: str, timeout: float = 900.0) -> dict[str, str]:
        """``airflow backfill create``, and wait until its runs have ended.

        Args:
            dag_id: id of the DAG, which is not paused afterwards.
            first: logical date of the first interval.
            last: logical date of the last interval, included.
            arguments: further arguments of the command, such as ``--run-backwards``.
            timeout: seconds for the runs.

        Returns:
            State of each run of the DAG in that range, by logical date (``YYYY-MM-DD``).
        """
        # Runs that begin while others are being created would conflict in SQLite, and the backfill would be incomplete.
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": True})
        self.create_backfill(dag_id, first, last, *arguments)
        self.api("PATCH", f"/dags/{dag_id}", {"is_paused": False})

        def ended() -> dict[str, str]:
            runs = [r for r in self.runs(dag_id) if r["logical_date"] and first <= r["logical_date"][:10] <= last]
            states = {r["logical_date"][:10]: r["state"] for r in runs}
            return states if all(state in _ENDED for state in states.values()) else {}

        states: dict[str, str] = wait_until(
            ended, f"the backfill of DAG {dag_id}", timeout=timeout, interval=_POLL_INTERVAL
        )

        # The scheduler closes it within 30 seconds, and until then no other one can be made for the DAG.
        self._wait_until_closed(dag_id)
        return states

    @_try_again
    def create_backfill(self, dag_id: str, first: str, last: str, *arguments: str) -> None:
        """``airflow backfill create`` of a DAG that is paused; arguments as for :meth:`backfill`."""
        # If SQLite was locked, the last try has left a backfill without runs, which prevents another one.
        self._wait_until_closed(dag_id)
        self._command("backfill", "create", "--dag-id", dag_id, "--from-date", first, "--to-date", last, *arguments)

    def _wait_until_closed(self, dag_id: str) -> None:
        wait_until(
            lambda: self._close_backfills(dag_id),
            f"the end of the backfill of DAG {dag_id}",
            timeout=120,
            interval=_POLL_INTERVAL,
        )

    def _close_backfills(self, dag_id: str) -> bool:
        """Close all backfills of a DAG; whether they were closed already."""
        backfills = self.api("GET", "/backfills", dag_id=dag_id)["backfills"]
        active = [backfill for backfill in backfills if backfill["completed_at"] is None]
        for backfill in active:
            with contextlib.suppress(ApiError):
                self.api("PUT", f"/backfills/{backfill['id']}/cancel")
        return not active
