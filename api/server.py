"""uvicorn in a thread, that wakes only when somebody asks."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from starlette.types import ASGIApp

READERS = 4
"""Requests answered at once; more wait. The machine is there for the trials."""
SWITCH_S = 0.0001
"""How long a thread that computes keeps the interpreter while others want it. Python's own 5 ms are waited for several
times in each answer, as long as some reader has a study read anew."""
STOP_S = 3.0
"""The longest an ending server is waited for."""


class ThreadServer:
    """Answers on a listening socket until ``stop``; installs no signal handler."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
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
            limit_concurrency=1000,
        )
        self._server = _Sleeper(config)
        self._listening = listening
        self._thread = threading.Thread(target=self._run, name="autotune-serve", daemon=True)

    def start(self) -> None:
        """Returns at once; connections made before the thread is ready wait."""
        self._thread.start()

    def stop(self) -> None:
        """Ends what is being answered within ``STOP_S``."""
        self._server.stop()
        self._thread.join(STOP_S)

    def wait(self, timeout: float | None = None) -> None:
        """Until the server has ended, by itself or by ``stop``."""
        self._thread.join(timeout)

    def _run(self) -> None:
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._server.run(sockets=[self._listening])


class _Sleeper(uvicorn.Server):
    """uvicorn looks every 100 ms whether to end; this one is told, so that it costs nothing between requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = asyncio.Event()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        current_default_thread_limiter().total_tokens = READERS
        await self.on_tick(0)
        if not self.should_exit:
            await self._told.wait()

    def stop(self) -> None:
        """From any thread."""
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told.set)
