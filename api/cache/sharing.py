"""Request coalescing: equal requests between two polls of the database get one answer.

All readers of a study learn of a change at the same moment and request the same page. Computing it once spares the
machine that is being measured.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyio.to_thread import run_sync
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.cache.studies import Look, StudyCache
from autotune.errors import AutotuneError

KEPT = 64
LARGEST_BODY = 1 << 20
"""Bytes; a larger answer is not shared."""

_SHARED = re.compile(
    r"/|/studies/\d+(/(why|compare|recommendation))?"
    r"|/api/v1/(recommendations|studies(/\d+(/(trials|recommendation))?)?)"
)
"""Addresses whose answers come from the database. Logs and timelines are files, and streams have no end."""
_NAMED = frozenset({b"host", b"accept", b"accept-encoding", b"if-none-match"})
"""Headers an answer may depend on. Who asks is none of it: that was judged before."""
_KEPT_STATUSES = frozenset({200, 304})

Question = tuple[str, bytes, tuple[tuple[bytes, bytes], ...]]


@dataclass(frozen=True)
class _Answer:
    look: Look
    """It was made after this look at the database, and holds until the next one."""
    messages: Sequence[Message]


class Shared:
    """ASGI around the application, inside its guard. Used by one event loop."""

    def __init__(self, app: ASGIApp, cache: StudyCache, shared: Callable[[], None]) -> None:
        """``shared`` is called for each request that gets the answer of another one."""
        self._app = app
        self._cache = cache
        self._count_shared = shared
        self._answers: OrderedDict[Question, _Answer] = OrderedDict()
        self._asking: dict[Question, asyncio.Event] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = _question(scope) if self._cache.looks_seldom else None
        if question is None:
            await self._app(scope, receive, send)
            return
        answer = self._known(question)
        asking = self._asking.get(question)
        if answer is None and asking is not None:
            await asking.wait()
            answer = self._known(question)
            if answer is None:  # that one told nothing that others may have, or the database has been looked at since
                await self._app(scope, receive, send)
                return
        messages = await self._asked(question, scope, receive) if answer is None else answer.messages
        if answer is not None:
            self._count_shared()
        for message in messages:
            await send({**message})

    def _known(self, question: Question) -> _Answer | None:
        answer = self._answers.get(question)
        return answer if answer is not None and answer.look is self._cache.known_look() else None

    async def _asked(self, question: Question, scope: Scope, receive: Receive) -> Sequence[Message]:
        """The application's whole answer as ASGI messages, so that a slow reader holds up none of the others."""
        done = self._asking[question] = asyncio.Event()
        messages: list[Message] = []

        async def take(message: Message) -> None:
            messages.append(message)

        try:
            look = await self._look()
            await self._app(scope, receive, take)
            if look is not None and _may_be_shared(messages):
                self._answers.pop(question, None)
                self._answers[question] = _Answer(look, messages)
                while len(self._answers) > KEPT:
                    self._answers.popitem(last=False)
        finally:
            del self._asking[question]
            done.set()
        return messages

    async def _look(self) -> Look | None:
        """The current look at the database, or ``None`` if it fails; the application then reports why."""
        try:
            return self._cache.known_look() or await run_sync(self._cache.look)
        except AutotuneError:
            return None


def _question(scope: Scope) -> Question | None:
    """Key of a request whose answer several readers may share; ``None`` for any other request."""
    if scope["type"] != "http" or scope["method"] != "GET" or _SHARED.fullmatch(scope["path"]) is None:
        return None
    named = tuple((name, value) for name, value in scope["headers"] if name in _NAMED)
    return scope["path"], scope["query_string"], named


def _may_be_shared(messages: Sequence[Message]) -> bool:
    if not messages or messages[0].get("status") not in _KEPT_STATUSES:
        return False
    return sum(len(message.get("body", b"")) for message in messages) <= LARGEST_BODY
