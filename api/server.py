"""Runs uvicorn in a thread that wakes only for requests."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import h11
import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

READERS = 4
"""Requests answered at once; further ones wait, because the machine is there for the trials."""
SWITCH_S = 0.0001
"""Seconds that a computing thread keeps the interpreter while others wait. With Python's default, each answer waits
5 ms several times while another reader's study is read."""
STOP_S = 3.0
"""Most seconds to wait for the server's end."""
REQUEST_S = 20.0
"""Seconds in which a request must arrive whole; a browser's own takes milliseconds."""
MOST_CONNECTIONS = 1000
"""Most connections; further ones are answered 503."""


class ThreadServer:
    """Answers on a listening socket until ``stop``; installs no signal handler."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=RequestsInTime,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            limit_concurrency=MOST_CONNECTIONS,
        )
        self._server = _Sleeper(config)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="autotune-serve", daemon=True)

    def start(self) -> None:
        """Starts the thread and returns at once; earlier connections wait until it is ready."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the server; pending answers have ``STOP_S``."""
        self._server.stop()
        self._thread.join(STOP_S)

    def wait(self, timeout: float | None = None) -> None:
        """Waits until the server has ended, by itself or by ``stop``."""
        self._thread.join(timeout)

    def _run(self) -> None:
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._server.run(sockets=[self._listening])


class RequestsInTime(H11Protocol):
    """Connection that closes if its request is not complete after ``REQUEST_S``, even if data still arrives.

    uvicorn alone waits for the rest of a request for ever, so unfinished requests could block all other readers.
    """

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._await_rest()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_rest()
        else:
            self._rest_came()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest_came()
        super().connection_lost(exc)

    def _await_rest(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(REQUEST_S, self.transport.close)

    def _rest_came(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None


class _Sleeper(uvicorn.Server):
    """A uvicorn server that waits for ``stop`` instead of polling every 100 ms."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_asked = asyncio.Event()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        current_default_thread_limiter().total_tokens = READERS
        await self.on_tick(0)
        if not self.should_exit:
            await self._stop_asked.wait()

    def stop(self) -> None:
        """Ends the server, from any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop_asked.set)
