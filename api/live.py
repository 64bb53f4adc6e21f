"""Live events of studies: each stream looks for changes once a second, through the cache that all readers share.

A stream makes its next message only when its reader has taken the previous one, so nothing queues up in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import run_sync
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.exceptions import HTTPException

from api.cache import StudyCache
from api.responses import dumps
from autotune.documents.study import event_json
from autotune.domain import Event
from autotune.errors import AutotuneError

LOOK_S = 1.0
"""Seconds between two checks of a stream for changes."""
MOST_LISTENERS = 100
REPLAYED = 200
"""Most events sent at once."""
PING_S = 15.0
"""Seconds without a message after which a comment is sent, as the HTML standard recommends."""


class Hub:
    """Streams of a server. Only its event loop uses it."""

    def __init__(self, cache: StudyCache) -> None:
        self._cache = cache
        self.listeners = 0
        cache.followers = lambda: self.listeners

    @asynccontextmanager
    async def listening(self, study_id: int, after: int | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yields a stream of the events after id ``after``; ``None``: of new events only.

        Raises:
            NotFoundError, StoreError: there is no such study, or the database cannot be read.
            HTTPException: there are too many listeners.
        """
        if self.listeners >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} readers listen already", {"Retry-After": "30"})
        self.listeners += 1
        try:
            last = await run_sync(lambda: self._cache.store(study_id).last_event_id(study_id))
            yield self._pieces(study_id, last if after is None else min(after, last))
        finally:
            self.listeners -= 1

    async def _pieces(self, study_id: int, after: int) -> AsyncIterator[bytes]:
        """Yields messages as bytes: events, then the new revision; a comment after ``PING_S`` without any. Sends none
        while the database cannot be read, and loses none."""
        sent: tuple[int, bool] | None = None
        quiet_s = 0.0
        while True:
            state = sent
            try:
                state = await run_sync(self._state, study_id)
                while state != sent and (events := await run_sync(self._cache.events, study_id, after, REPLAYED)):
                    yield b"".join(map(event_message, events))
                    after, quiet_s = events[-1].id, 0.0
            except AutotuneError:  # it is looked for again the next time
                state = sent
            if state is not None and state != sent:
                yield _wire({"revision": state[0]}, "changed", None)
                sent, quiet_s = state, 0.0
            if quiet_s >= PING_S:
                yield KEEPALIVE_COMMENT
                quiet_s = 0.0
            await asyncio.sleep(LOOK_S)
            quiet_s += LOOK_S

    def _state(self, study_id: int) -> tuple[int, bool]:
        return self._cache.study(study_id).revision, self._cache.alive(study_id)


def event_message(event: Event) -> bytes:
    """Returns the message of an event, with its id."""
    return _wire(event_json(event), "event", str(event.id))


def _wire(data: object, event: str, number: str | None) -> bytes:
    return format_sse_event(data_str=dumps(data).decode(), event=event, id=number)
