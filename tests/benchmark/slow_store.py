"""A store with the times of S3: each request waits, and a connection has a bounded rate.

``python -m tests.benchmark.slow_store ADDRESS SECONDS BYTES`` forwards connections to a server and prints its own port.
It looks at no bytes but the first of a response: ``100 Continue`` is not the end of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from tests.benchmark.scale import many_objects
from tests.spark.pipeline import ROOT

WAITS: Final = (0.0, 0.02, 0.05)
"""Seconds that are added to each request."""
RATE: Final = 100_000_000
"""Bytes per second of a connection, in each direction."""
_CHUNK: Final = 64 * 1024
_CONTINUE: Final = b"HTTP/1.1 100"


@contextlib.contextmanager
def slow_store(endpoint: str, wait: float) -> Iterator[str]:
    """The address of a slow store before a server; the server itself if there is nothing to wait for."""
    if not wait:
        yield endpoint
        return
    address = urlsplit(endpoint).netloc
    command = [sys.executable, "-m", "tests.benchmark.slow_store", address, str(wait), str(RATE)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


@dataclass
class _Connection:
    """A connection of a client.

    Attributes:
        begins: whether the client's next bytes are a new request.
    """

    wait: float
    rate: float
    begins: bool = True

    async def requests(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Forward what the client sends."""
        free = 0.0
        while piece := await source.read(_CHUNK):
            if self.begins:
                self.begins = False
                await asyncio.sleep(self.wait)
            free = await self._forward(piece, target, free)
        target.write_eof()

    async def responses(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Forward what the server sends."""
        free = 0.0
        while piece := await source.read(_CHUNK):
            if not piece.startswith(_CONTINUE):
                self.begins = True
            free = await self._forward(piece, target, free)
        target.close()

    async def _forward(self, piece: bytes, target: asyncio.StreamWriter, free: float) -> float:
        """Send a piece when the ones before it have passed; returns when this one has."""
        if (delay := free - time.monotonic()) > 0.001:
            await asyncio.sleep(delay)
        target.write(piece)
        await target.drain()
        return max(free, time.monotonic()) + len(piece) / self.rate


async def _serve(host: str, port: int, wait: float, rate: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        connection = _Connection(wait, rate)
        with contextlib.suppress(OSError):
            await asyncio.gather(connection.requests(reader, back), connection.responses(there, writer))
        for one in (writer, back):
            one.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def slow_stores(config: dict[str, Any], drive: Any) -> dict[str, Any]:
    """Land a topic, and complete a batch of 10,000 objects, in stores that take longer.

    Args:
        config: of the benchmark.
        drive: gives the results of a case.

    Returns:
        By the milliseconds that a request waits.
    """
    found = {}
    for wait in WAITS:
        with slow_store(config["endpoint"], wait) as endpoint:
            slow = {**config, "endpoint": endpoint}
            landed = {
                case: [r["wall"] for r in drive({**slow, "case": case}) if "round" in r and r["case"] == case]
                for case in ("ours: JSON", "ours: JSON gzip")
            }
            many = many_objects(slow)
            found[f"{wait * 1000:.0f} ms"] = {
                **{case: round(sorted(walls)[len(walls) // 2], 2) for case, walls in landed.items()},
                **{name: many[name] for name in ("objects", "complete_s", "objects_per_s")},
            }
    return found


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines of text."""
    return [
        f"  {wait:>6} more a request: " + ", ".join(f"{name} {figure}" for name, figure in of_store.items())
        for wait, of_store in found.items()
    ]


if __name__ == "__main__":
    _address, _wait, _rate = sys.argv[1:]
    _host, _, _port = _address.rpartition(":")
    asyncio.run(_serve(_host, int(_port), float(_wait), float(_rate)))
