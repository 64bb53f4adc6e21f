"""Who listens to what happens. One reader of the database for all listeners of a study, once a second while there
are any; every listener has a queue of its own, and whoever lets it fill is dropped."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException

from api.library import Library
from autotune.domain import Event
from autotune.errors import AutotuneError

LOOK_S = 1.0
"""Between two looks at the database."""
LARGEST_QUEUE = 256
"""Items a listener may be behind by; one that is further behind begins anew from its last id."""
MOST_LISTENERS = 100
REPLAYED = 200
"""Events read at a time for a listener that catches up."""

Item = Event | int
"""An event, or the revision a study has grown to."""


class Listener:
    """One reader of a stream."""

    def __init__(self, hub: Hub, study_id: int, after: int) -> None:
        self._hub = hub
        self.study_id = study_id
        self.after = after
        """Greatest event id that was handed over."""
        self._waiting: deque[Item] = deque()
        self._some = asyncio.Event()
        self.dropped = False

    def put(self, item: Item) -> None:
        """Of revisions only the newest waits; a listener that is too far behind is dropped."""
        if isinstance(item, int) and self._waiting and isinstance(self._waiting[-1], int):
            self._waiting.pop()
        self._waiting.append(item)
        self.dropped |= len(self._waiting) > LARGEST_QUEUE
        self._some.set()

    def end(self) -> None:
        """Wakes whoever waits for items, for the last time."""
        self.dropped = True
        self._some.set()

    async def items(self) -> AsyncIterator[Item]:
        """First what happened after ``after``, then what happens; ends when the listener is dropped, or when what it
        missed cannot be read: it comes again with its last id, and nothing was left out."""
        try:
            while missed := await self._hub.read(self.study_id, self.after):
                for event in missed:
                    self.after = event.id
                    yield event
        except AutotuneError:
            return
        while not self.dropped:
            await self._some.wait()
            self._some.clear()
            while self._waiting and not self.dropped:
                item = self._waiting.popleft()
                if isinstance(item, Event):
                    if item.id <= self.after:
                        continue
                    self.after = item.id
                yield item


class Hub:
    """All listeners of a server. Used by its event loop alone."""

    def __init__(self, library: Library, look_s: float = LOOK_S) -> None:
        self._library = library
        self._look_s = look_s
        self._listeners: dict[int, set[Listener]] = {}
        self._watchers: dict[int, asyncio.Task[None]] = {}
        self._joining = 0
        self.dropped = 0
        """Listeners that were too slow, since the server began."""

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return sum(len(some) for some in self._listeners.values())

    async def join(self, study_id: int, after: int | None) -> Listener:
        """A listener to a study, from event ``after`` on, or from now.

        Raises:
            NotFoundError, StoreError: there is no such study, or the database cannot be read.
            HTTPException: too many listen.
        """
        if self.listeners + self._joining >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} readers listen already", {"Retry-After": "30"})
        self._joining += 1
        try:
            study = await run_sync(self._library.study, study_id)
            latest = await self._latest(study_id)
        finally:
            self._joining -= 1
        listener = Listener(self, study_id, latest if after is None else min(after, latest))
        self._listeners.setdefault(study_id, set()).add(listener)
        if study_id not in self._watchers:
            watching = asyncio.create_task(self._watch(study_id, latest, study.revision))
            self._watchers[study_id] = watching
            watching.add_done_callback(lambda ended: self._ended(study_id, ended))
        listener.put(study.revision)
        return listener

    def leave(self, listener: Listener) -> None:
        """Idempotent; with its last listener a study is watched no longer."""
        some = self._listeners.get(listener.study_id, set())
        some.discard(listener)
        if not some:
            self._listeners.pop(listener.study_id, None)
            watching = self._watchers.pop(listener.study_id, None)
            if watching is not None:
                watching.cancel()

    async def read(self, study_id: int, after: int) -> tuple[Event, ...]:
        """Some events after ``after``; none when there are none. Raises ``NotFoundError`` or ``StoreError``."""
        return await run_sync(self._library.events, study_id, after, REPLAYED)

    async def _latest(self, study_id: int) -> int:
        return await run_sync(self._library.last_event_id, study_id)

    async def _watch(self, study_id: int, after: int, revision: int) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                now = (await run_sync(self._library.study, study_id)).revision
                if now == revision:
                    continue
                while found := await self.read(study_id, after):
                    after = found[-1].id
                    for event in found:
                        self._tell(study_id, event)
            except AutotuneError:  # looked at again, from where it was, the next time
                continue
            revision = now
            self._tell(study_id, revision)

    def _ended(self, study_id: int, watching: asyncio.Task[None]) -> None:
        """A watcher that broke leaves nobody waiting for ever: its listeners come again, and begin another one."""
        if self._watchers.get(study_id) is watching:
            del self._watchers[study_id]
            for listener in self._listeners.get(study_id, ()):
                listener.end()

    def _tell(self, study_id: int, item: Item) -> None:
        for listener in tuple(self._listeners.get(study_id, ())):
            listener.put(item)
            if listener.dropped:
                self.dropped += 1
                self._listeners[study_id].discard(listener)
                listener.end()
