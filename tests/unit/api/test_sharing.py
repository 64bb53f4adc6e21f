"""Readers who ask the same at once are given one answer, and never one of before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from api.app import create_app
from api.cache import studies as library_module
from api.cache.sharing import LARGEST_BODY, Shared
from api.cache.studies import StudyCache
from api.guard.codes import Codes
from api.guard.security import Access
from autotune.domain import Study
from autotune.errors import StoreError
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.served import URL
from tests.support.waiting import PATIENCE_S

STUDY = "/api/v1/studies/1"
EVENTS = f"{STUDY}/events"
LIST = "/api/v1/studies"


class Application:
    """Answers with how often it was asked; as large and as well as it is told to be, and when ``held`` is set."""

    def __init__(self) -> None:
        self.asked = 0
        self.status, self.body = 200, b""
        self.held: asyncio.Event | None = None
        self.error: Exception | None = None
        """Raised once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        number = self.asked
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        await send({"type": "http.response.start", "status": self.status, "headers": [(b"x-asked", b"%d" % number)]})
        await send({"type": "http.response.body", "body": self.body or b"%d" % number})


async def begun(inner: Application, asked: int) -> None:
    """Return once it was asked so often."""
    while inner.asked < asked:
        await asyncio.sleep(0.001)


class Looks:
    """A cache of studies that is looked at, and that has changed when a test says so."""

    looks_seldom = True

    def __init__(self) -> None:
        self.now: Any = (0.0, {1: 1})
        self.broken = False

    def known_look(self) -> Any:
        return None if self.broken else self.now

    def look(self) -> Any:
        if self.broken:
            raise StoreError("gone")
        return self.now


def scope(path: str = STUDY, method: str = "GET", query: str = "", **headers: str) -> Scope:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": named}


async def nothing() -> Message:
    raise AssertionError("nobody has a body to give")


async def answer(app: Shared, asked: Scope) -> tuple[int, bytes]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await app(asked, nothing, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent)


@pytest.fixture
def inner() -> Application:
    return Application()


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def counted() -> list[None]:
    return []


@pytest.fixture
def shared(inner: Application, looks: Looks, counted: list[None]) -> Shared:
    return Shared(inner, looks, partial(counted.append, None))  # type: ignore[arg-type]


def test_many_who_ask_at_once_are_answered_once(shared: Shared, inner: Application, counted: list[None]) -> None:
    async def scene() -> list[tuple[int, bytes]]:
        inner.held = asyncio.Event()
        asking = [asyncio.create_task(answer(shared, scope())) for _ in range(20)]
        await begun(inner, 1)
        for _ in range(100):
            await asyncio.sleep(0)
        inner.held.set()
        return await asyncio.gather(*asking)

    assert asyncio.run(scene()) == [(200, b"1")] * 20
    assert inner.asked == 1
    assert len(counted) == 19


def test_after_the_next_look_nobody_is_given_an_answer_of_before(
    shared: Shared, inner: Application, looks: Looks
) -> None:
    """A page that is told of the last change and then given the state before it would show that for ever."""

    async def scene() -> None:
        assert await answer(shared, scope()) == (200, b"1")
        assert await answer(shared, scope()) == (200, b"1")
        looks.now = (1.0, {1: 1})
        assert await answer(shared, scope()) == (200, b"2"), "the same revisions at another time: it may have changed"
        inner.held = asyncio.Event()
        looks.now = (2.0, {1: 2})
        asking = asyncio.create_task(answer(shared, scope()))
        await begun(inner, 3)
        looks.now = (3.0, {1: 3})
        asking_again = asyncio.create_task(answer(shared, scope()))
        for _ in range(100):
            await asyncio.sleep(0)
        inner.held.set()
        assert await asking_again == (200, b"4"), "that one was begun before the last look"
        assert await asking == (200, b"3")

    asyncio.run(scene())


@pytest.mark.parametrize(
    "other",
    [
        scope(query="limit=1"),
        scope(accept="text/html"),
        scope(accept_encoding="gzip"),
        scope(if_none_match='"x"'),
        scope(host="another"),
        scope("/api/v1/studies/2"),
    ],
)
def test_another_question_has_another_answer(shared: Shared, other: Scope) -> None:
    async def scene() -> None:
        assert await answer(shared, scope()) == (200, b"1")
        assert await answer(shared, other) == (200, b"2")
        assert await answer(shared, scope()) == (200, b"1")

    asyncio.run(scene())


@pytest.mark.parametrize(
    "asked",
    [
        scope(method="POST"),
        scope(f"{EVENTS}/stream"),
        scope(EVENTS),
        scope(f"{STUDY}/trials/0/log"),
        scope(f"{STUDY}/trials/0/memory"),
        scope("/studies/1/trials/0"),
        scope("/studies/1/export/1.zip"),
        scope("/login"),
        scope("/metrics"),
        scope("/readyz"),
    ],
)
def test_what_is_not_of_the_database_alone_is_everybodys_own(shared: Shared, asked: Scope) -> None:
    async def scene() -> None:
        assert [await answer(shared, asked) for _ in range(2)] == [(200, b"1"), (200, b"2")]

    asyncio.run(scene())


@pytest.mark.parametrize("what", ["status", "large"])
def test_an_error_or_a_large_answer_is_not_kept(shared: Shared, inner: Application, what: str) -> None:
    inner.status, inner.body = (404, b"") if what == "status" else (200, bytes(LARGEST_BODY + 1))

    async def scene() -> None:
        await answer(shared, scope())
        await answer(shared, scope())

    asyncio.run(scene())
    assert inner.asked == 2


def test_who_waited_for_one_that_failed_asks_for_himself(shared: Shared, inner: Application, looks: Looks) -> None:
    inner.error = ValueError("broken")

    async def scene() -> None:
        inner.held = asyncio.Event()
        first = asyncio.create_task(answer(shared, scope()))
        await begun(inner, 1)
        second = asyncio.create_task(answer(shared, scope()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert inner.asked == 1
        inner.held.set()
        with pytest.raises(ValueError, match="broken"):
            await first
        assert await second == (200, b"2")
        assert await answer(shared, scope()) == (200, b"3")
        looks.broken = True
        assert await answer(shared, scope()) == (200, b"4"), "the application says what is wrong with the database"

    asyncio.run(scene())


def test_a_reader_who_takes_nothing_holds_up_nobody(shared: Shared, inner: Application) -> None:
    async def scene() -> None:
        stuck = asyncio.Event()

        async def never(message: Message) -> None:
            await stuck.wait()

        slow = asyncio.create_task(shared(scope(), nothing, never))
        await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            assert await answer(shared, scope()) == (200, b"1")
        stuck.set()
        await slow

    asyncio.run(scene())
    assert inner.asked == 1


@pytest.fixture
def cache(settings: Settings, study: Study) -> Iterator[StudyCache]:
    made = StudyCache(settings, partial(open_store, settings.database))
    yield made
    made.close()


def test_the_whole_application_shares_and_tells_what_has_changed(
    cache: StudyCache, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_module, "GLANCE_S", 3600.0)
    app = create_app(cache, Access(), lambda _: None, "1", codes=Codes(lambda _: None))

    async def scene() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=URL) as client:

            async def number() -> int:
                text = (await client.get("/metrics")).text
                line = next(one for one in text.splitlines() if one.startswith("autotune_http_answers_shared_total"))
                return int(line.split()[1])

            answers = await asyncio.gather(*(client.get(LIST) for _ in range(8)))
            assert {one.status_code for one in answers} == {200}
            assert len({one.text for one in answers}) == 1
            assert await number() == 7
            before = answers[0].json()["studies"][0]["revision"]
            headed = await client.head(LIST)
            assert (headed.status_code, headed.content) == (200, b"")
            assert headed.headers["etag"] == answers[0].headers["etag"]
            again = await client.get(LIST, headers={"If-None-Match": answers[0].headers["etag"]})
            assert again.status_code == 304
            assert all(one.headers["x-frame-options"] == "DENY" for one in (*answers, headed, again))
            store = open_store(settings.database)
            store.add_event(1, factories.event())
            store.close()
            cache._seen = None
            assert (await client.get(LIST)).json()["studies"][0]["revision"] == before + 1

    asyncio.run(scene())
