"""TLS in front of a server that has none, as a load balancer has it: gRPC's, whose clients require HTTP/2."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Final

from dev.certificates import Certificate, server_context
from dev.ports import HOST
from dev.supervisor import Startable

__all__ = ["TlsFront"]

_PIECE: Final = 65_536


class TlsFront(Startable):
    """Hands the bytes of its connections on, in a thread of this process.

    Args:
        certificate: to show to clients.
        upstream: port of the server; it may change, for later connections.

    Attributes:
        port: for clients, known after :meth:`start`.
    """

    def __init__(self, certificate: Certificate, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        self._server: asyncio.Server | None = None
        self._context = server_context(certificate)
        self._context.set_alpn_protocols(["h2"])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tls-front", daemon=True)

    def _start(self) -> None:
        self._thread.start()
        listening = asyncio.start_server(self._connected, HOST, 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(30)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(30)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            to_server = await asyncio.open_connection(HOST, self.upstream)
            with contextlib.closing(to_server[1]):
                ways = (self._hand_on(reader, to_server[1]), self._hand_on(to_server[0], writer))
                # The end of one way is that of the connection.
                tasks = [asyncio.ensure_future(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()

    @staticmethod
    async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE):
                writer.write(piece)
                await writer.drain()
