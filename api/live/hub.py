"""Live events of studies: polls the database once a second for each study that has listeners.

Each listener has its own queue, and is dropped when the queue is full.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.exceptions import HTTPException

from api.cache.studies import StudyCache
from api.responses import dumps
from autotune.documents.study import event_json
from autotune.domain import Event
from autotune.errors import AutotuneError

LOOK_S = 1.0
"""Seconds between two polls of the database."""
LARGEST_QUEUE = 256
"""Most queued messages of a listener; it is then dropped, and can resume from its last event id."""
MOST_LISTENERS = 100
REPLAYED = 200
"""Events read at a time for a listener that catches up."""
PING_S = 15.0
"""Seconds without a message after which a comment is sent, as the HTML standard recommends."""
PIECE_BYTES = 1 << 16
"""Approximate bytes of a piece of waiting messages: a piece costs the server as much as a small answer."""


@dataclass(frozen=True)
class SseMessage:
    """A message of a stream: an event, or a new revision of the study."""

    id: int | None
    """Id of the event; ``None`` for a revision."""
    wire: bytes


def event_message(event: Event) -> SseMessage:
    """Makes the message of an event, with its id."""
    return SseMessage(event.id, _wire(event_json(event), "event", str(event.id)))


def revision_message(revision: int) -> SseMessage:
    """Makes the message of a new revision; without an id, since a reconnected reader gets the newest revision."""
    return SseMessage(None, _wire({"revision": revision}, "changed", None))


def _wire(data: object, event: str, number: str | None) -> bytes:
    return format_sse_event(data_str=dumps(data).decode(), event=event, id=number)


@dataclass
class WatchedStudy:
    """State that the listeners of a study have been sent."""

    revision: int
    alive: bool
    """True if a tuner runs the study."""
    after: int
    """Greatest event id that was sent; listeners get every later event."""
    sound: bool = True
    """True if the last poll of the database succeeded."""
    task: asyncio.Task[None] | None = None
    """Task that polls repeatedly; ``None`` before the first listener."""


class Listener:
    """A reader of an event stream."""

    def __init__(self, hub: Hub, study_id: int, after: int, missed: bool = True) -> None:
        """Takes ``missed``: true if events after ``after`` may have been sent before; they are read first."""
        self._hub = hub
        self.study_id = study_id
        self.after = after
        """Greatest event id that was delivered."""
        self._missed = missed
        self._waiting: deque[SseMessage] = deque()
        self._some = asyncio.Event()
        self.dropped = False

    def put(self, message: SseMessage) -> None:
        """Queues a message. Only the newest revision waits; a listener that is too far behind is dropped."""
        if message.id is None and self._waiting and self._waiting[-1].id is None:
            self._waiting.pop()
        self._waiting.append(message)
        self.dropped |= len(self._waiting) > LARGEST_QUEUE
        self._some.set()

    def end(self) -> None:
        """Marks the listener as dropped and wakes its reader for the last time."""
        self.dropped = True
        self._some.set()

    async def batches(self) -> AsyncIterator[Sequence[SseMessage]]:
        """Yields missed events, then all waiting messages at once; an empty batch after ``PING_S`` without one. Ends
        when the listener is dropped, or missed events cannot be read; the reader resumes with its last id."""
        try:
            while self._missed and (missed := await self._hub.read(self.study_id, self.after)):
                self.after = missed[-1].id
                yield [event_message(event) for event in missed]
        except AutotuneError:
            return
        while not self.dropped:
            try:
                async with asyncio.timeout(PING_S):
                    await self._some.wait()
            except TimeoutError:
                yield ()
                continue
            self._some.clear()
            batch = self._taken()
            if batch and not self.dropped:
                yield batch

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the waiting messages as bytes."""
        async for batch in self.batches():
            piece = b"" if batch else KEEPALIVE_COMMENT
            for message in batch:
                if piece and len(piece) + len(message.wire) > PIECE_BYTES:
                    yield piece
                    piece = b""
                piece += message.wire
            yield piece

    def _taken(self) -> list[SseMessage]:
        """Removes and returns the waiting messages, without events the reader already has."""
        batch: list[SseMessage] = []
        while self._waiting:
            message = self._waiting.popleft()
            if message.id is not None:
                if message.id <= self.after:
                    continue
                self.after = message.id
            batch.append(message)
        return batch


class Hub:
    """Listeners of a server by study. Used by its event loop alone."""

    def __init__(self, cache: StudyCache, look_s: float = LOOK_S) -> None:
        self._cache = cache
        self._look_s = look_s
        cache.followers = lambda: self.listeners
        self._listeners: dict[int, set[Listener]] = {}
        self._watchers: dict[int, WatchedStudy] = {}
        self._beginnings: dict[int, asyncio.Task[WatchedStudy]] = {}
        self._joining = 0
        self.dropped = 0
        """Number of listeners dropped as too slow, since the server began."""

    @property
    def listeners(self) -> int:
        """Number of listeners."""
        return sum(len(some) for some in self._listeners.values())

    async def join(self, study_id: int, after: int | None) -> Listener:
        """Adds a listener to a study, from event ``after`` on, or else from the last event sent to its listeners.

        Raises:
            NotFoundError, StoreError: there is no such study, or the database cannot be read.
            HTTPException: there are too many listeners.
        """
        if self.listeners + self._joining >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} readers listen already", {"Retry-After": "30"})
        self._joining += 1
        try:
            watch = await self._watched(study_id)
            if after is not None and after > watch.after:
                after = min(after, await run_sync(self._cache.last_event_id, study_id))
                watch = await self._watched(study_id)
        finally:
            self._joining -= 1
        start = watch.after if after is None else after
        listener = Listener(self, study_id, start, missed=start < watch.after)
        self._listeners.setdefault(study_id, set()).add(listener)
        if self._watchers.get(study_id) is not watch:
            self._watchers[study_id] = watch
            watch.task = asyncio.create_task(self._watch(study_id, watch))
            watch.task.add_done_callback(lambda ended: self._ended(study_id, ended))
        listener.put(revision_message(watch.revision))
        return listener

    async def _watched(self, study_id: int) -> WatchedStudy:
        """Returns the state of a watched study; reads the database only before its first listener, once for all."""
        watch = self._watchers.get(study_id)
        if watch is not None and watch.sound:
            return watch
        beginning = self._beginnings.get(study_id)
        if beginning is None:
            beginning = self._beginnings[study_id] = asyncio.create_task(run_sync(self._begun, study_id))
            beginning.add_done_callback(lambda begun: self._has_begun(study_id, begun))
        begun = await asyncio.shield(beginning)
        return self._watchers.get(study_id, begun)

    def _begun(self, study_id: int) -> WatchedStudy:
        return WatchedStudy(*self._state(study_id), self._cache.last_event_id(study_id))

    def _state(self, study_id: int) -> tuple[int, bool]:
        return self._cache.study(study_id).revision, self._cache.alive(study_id)

    def _has_begun(self, study_id: int, begun: asyncio.Task[WatchedStudy]) -> None:
        del self._beginnings[study_id]
        if not begun.cancelled():
            begun.exception()  # those who waited are told; if all have gone, nobody need be

    def leave(self, listener: Listener) -> None:
        """Removes a listener; stops watching a study with its last one. A second call does nothing."""
        some = self._listeners.get(listener.study_id, set())
        some.discard(listener)
        if not some:
            self._listeners.pop(listener.study_id, None)
            watch = self._watchers.pop(listener.study_id, None)
            if watch is not None and watch.task is not None:
                watch.task.cancel()

    async def read(self, study_id: int, after: int) -> tuple[Event, ...]:
        """Reads up to ``REPLAYED`` events after ``after``. Raises ``NotFoundError`` or ``StoreError``."""
        return await run_sync(self._cache.events, study_id, after, REPLAYED)

    async def _watch(self, study_id: int, watch: WatchedStudy) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                now, alive = await run_sync(self._state, study_id)
                full = now != watch.revision
                while full:
                    found = await self.read(study_id, watch.after)
                    watch.after = found[-1].id if found else watch.after
                    for event in found:
                        self._tell(study_id, event_message(event))
                    full = len(found) >= REPLAYED
            except AutotuneError:  # looked at again, from where it was, the next time
                watch.sound = False
                continue
            watch.sound = True
            if (now, alive) != (watch.revision, watch.alive):
                watch.revision, watch.alive = now, alive
                self._tell(study_id, revision_message(now))

    def _ended(self, study_id: int, ended: asyncio.Task[None]) -> None:
        """Ends the listeners of a watcher that failed; they reconnect, and that starts another."""
        watch = self._watchers.get(study_id)
        if watch is not None and watch.task is ended:
            del self._watchers[study_id]
            for listener in self._listeners.get(study_id, ()):
                listener.end()

    def _tell(self, study_id: int, message: SseMessage) -> None:
        for listener in tuple(self._listeners.get(study_id, ())):
            listener.put(message)
            if listener.dropped:
                self.dropped += 1
                self._listeners[study_id].discard(listener)
                listener.end()
