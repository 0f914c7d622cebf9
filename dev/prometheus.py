"""A real Prometheus, which scrapes an address and evaluates the alert rules of ``docs/metrics``.

``with Prometheus(address) as prometheus:`` starts one on a free loopback port (``make prometheus`` builds it). It lives
no longer than the process that started it, however that ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import httpx

from dev.ports import HOST, free_ports, listens
from dev.supervisor import SupervisedServer
from dev.waiting import wait_for_start

__all__ = ["ALERTS", "Prometheus"]

ROOT: Final = Path(__file__).resolve().parents[1]
ALERTS: Final = ROOT / "docs" / "metrics" / "alerts.yml"
_PROGRAM: Final = ROOT / ".build" / "bin" / "prometheus"

_CONFIG: Final = """
global: {{scrape_interval: 2s, evaluation_interval: 2s}}
rule_files: [{alerts}]
scrape_configs:
  - job_name: kafka-s3
    scrape_timeout: 2s
    metrics_path: /metrics
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus(SupervisedServer):
    """A Prometheus in a process group of its own.

    :meth:`start` returns when it listens. It raises a ``RuntimeError`` if it is not built, or, with the end of the log,
    if the process ends.

    Args:
        target: host and port of the page that has the metrics.
    """

    _NAME = "prometheus"

    def __init__(self, target: str) -> None:
        self._target = target

    @property
    def url(self) -> str:
        """Its address, known after :meth:`start`."""
        return f"http://{HOST}:{self.port}"

    def get(self, path: str, **parameters: str | float) -> Any:
        """The data of a request to its API.

        Raises:
            RuntimeError: it refuses the request, with its error.
        """
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, trust_env=False, timeout=60).json()
        if answer["status"] != "success":
            raise RuntimeError(f"Prometheus refuses {path} {parameters}: {answer['error']}")
        return answer["data"]

    def _start(self) -> None:
        if not _PROGRAM.is_file():
            raise RuntimeError(f"there is no {_PROGRAM}: run make prometheus")
        (self.port,) = free_ports(1)
        folder = self._make_directory()
        config = folder / "prometheus.yml"
        config.write_text(_CONFIG.format(alerts=ALERTS, target=self._target))
        process = self._run(
            [
                str(_PROGRAM),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={HOST}:{self.port}",
            ]
        )
        wait_for_start(
            f"Prometheus at {self.url}",
            lambda: listens(self.port),
            [process],
            timeout=60,
            log=self.last_lines,
            interval=0.1,
        )
