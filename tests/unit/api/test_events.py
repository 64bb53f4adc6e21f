"""Events as pages, and as a stream that loses nothing and that nobody can block."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from api import live
from api.live import Hub
from autotune.domain import Event, Study
from autotune.errors import StoreError
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.served import Reader, Served
from tests.support.waiting import PATIENCE_S, wait_for

EVENTS = "/api/v1/studies/1/events"


def add(settings: Settings, *kinds: str) -> None:
    store = open_store(settings.database)
    for kind in kinds:
        store.add_event(1, factories.event(kind, f"{kind} happened"))
    store.close()


def test_events_are_paged_and_filtered(reader: Reader, study: Study, settings: Settings) -> None:
    add(settings, "a", "b", "a", "c")
    assert [e["kind"] for e in reader.json(EVENTS)["events"]] == ["session_started", "a", "b", "a", "c"]
    assert [e["id"] for e in reader.json(f"{EVENTS}?after=3")["events"]] == [4, 5]
    assert [e["id"] for e in reader.json(f"{EVENTS}?kind=a")["events"]] == [2, 4]
    seen: list[int] = []
    path: str | None = f"{EVENTS}?limit=2"
    while path:
        answer = reader.ask(path)
        seen += [e["id"] for e in answer.json()["events"]]
        path = answer.links["next"]["url"] if "next" in answer.links else None
    assert seen == [1, 2, 3, 4, 5]
    assert reader.ask("/api/v1/studies/9/events").status_code == 404


@pytest.fixture
def served(reader: Reader, study: Study, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(live, "LOOK_S", 0.02)
    fast = Served(Reader(reader.cache._settings))
    yield fast
    fast.close()


class Stream:
    """What a browser's EventSource reads, line by line."""

    def __init__(self, served: Served, **headers: str) -> None:
        self.line = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
        named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self.line.sendall(f"GET {EVENTS}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n{named}\r\n".encode())
        self.file = self.line.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.headers = [h.decode().strip().lower() for h in iter(self.file.readline, b"\r\n")]

    def items(self, count: int) -> list[dict[str, Any]]:
        """The next ones, comments and chunk sizes left out."""
        found: list[dict[str, Any]] = []
        now: dict[str, Any] = {}
        while len(found) < count:
            name, colon, value = self.file.readline().decode().rstrip("\r\n").partition(": ")
            if colon and name in ("event", "data", "id"):
                now[name] = json.loads(value) if name == "data" else value
            elif now and not name:
                found.append(now)
                now = {}
        return found

    def close(self) -> None:
        self.file.close()
        self.line.close()


def test_what_happens_is_sent_with_its_id(served: Served, settings: Settings) -> None:
    stream = Stream(served)
    assert stream.status == 200
    assert any(h.startswith("content-type: text/event-stream") for h in stream.headers)
    (first,) = stream.items(1)
    assert first["event"] == "changed", "a new listener is told the revision it begins at"
    add(settings, "a")
    happened, changed = stream.items(2)
    assert (happened["event"], happened["id"], happened["data"]["kind"]) == ("event", "2", "a")
    assert changed["data"]["revision"] > first["data"]["revision"]
    stream.close()


def test_a_connection_that_broke_goes_on_after_its_last_event(served: Served, settings: Settings) -> None:
    add(settings, "a", "b", "c")
    stream = Stream(served, Last_Event_ID="2")
    sent = [i for i in stream.items(3) if i["event"] == "event"]
    assert [i["data"]["kind"] for i in sent] == ["b", "c"]
    add(settings, "d")
    assert [i["data"]["kind"] for i in stream.items(1)] == ["d"], "nothing twice"
    stream.close()


@pytest.mark.parametrize("given", ["", "x", "-1", "1e9", "\u00b2".encode().decode("latin-1")])
def test_an_id_that_is_none_begins_now(served: Served, given: str) -> None:
    stream = Stream(served, Last_Event_ID=given)
    assert stream.status == 200
    assert stream.items(1)[0]["event"] == "changed"
    stream.close()


def test_a_stream_of_nothing_is_refused_before_it_begins(served: Served, reader: Reader) -> None:
    answer = reader.ask("/api/v1/studies/9/events/stream")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_stream_has_no_head(reader: Reader, study: Study) -> None:
    """It would be answered for ever, with nothing."""
    answer = reader.ask(f"{EVENTS}/stream", "HEAD")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


def test_too_many_listeners_are_told_to_come_later(
    reader: Reader, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_LISTENERS", 0)
    answer = reader.ask(f"{EVENTS}/stream")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "30"


def test_who_does_not_read_is_disconnected_and_nothing_crashes(
    reader: Reader, study: Study, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket fills; without a bound its place, its task and what waits for it would stay for ever."""
    monkeypatch.setattr(live, "LOOK_S", 0.02)
    monkeypatch.setattr("api.guard.security.SLOWEST_S", 0.3)
    own = Reader(settings)
    served = Served(own)
    hub = own.app._app.state.hub  # type: ignore[attr-defined]
    line = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.sendall(f"GET {EVENTS}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    store = open_store(settings.database)
    wait_for(lambda: hub.listeners == 1, "its place")

    def gone() -> bool:
        store.add_event(1, factories.event(message="x" * 200_000))
        return bool(hub.listeners == 0)

    wait_for(gone, "its disconnection", step=0.0)
    store.close()
    assert own.crashes == []
    tally = own.app._app.state.tally  # type: ignore[attr-defined]
    wait_for(lambda: tally["cut off"], "the count of who was cut off")
    assert tally["cut off"] == 1, "and who watches the server is told"
    line.close()
    served.close()
    own.cache.close()


class Stumbling:
    """A library whose database cannot be read now and then."""

    def __init__(self) -> None:
        self.fails, self.revision = 0, 1
        self.happened = [Event("x", "", id=n) for n in range(1, 4)]
        self.error: type[Exception] = StoreError
        self.asked: Counter[str] = Counter()

    def study(self, study_id: int) -> Any:
        self.asked["study"] += 1
        return factories.study(revision=self.revision)

    def alive(self, study_id: int) -> bool:
        return True

    def store(self, study_id: int) -> "Stumbling":
        return self

    def last_event_id(self, study_id: int) -> int:
        self.asked["last"] += 1
        return len(self.happened)

    def events(self, study_id: int, after: int, limit: int) -> tuple[Event, ...]:
        self.asked["events"] += 1
        if self.fails > 0:
            self.fails -= 1
            raise self.error("gone")
        return tuple(e for e in self.happened if e.id > after)


async def next_ids(pieces: AsyncIterator[bytes], count: int) -> list[int]:
    ids: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        async for piece in pieces:
            ids += [int(line[4:]) for line in piece.decode().splitlines() if line.startswith("id: ")]
            if len(ids) >= count:
                break
    return ids


def test_events_that_could_not_be_read_come_later_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_S", 0.01)

    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache)  # type: ignore[arg-type]
        cache.fails = 3
        async with hub.listening(1, 1) as behind, hub.listening(1, None) as fresh:
            assert await next_ids(behind, 2) == [2, 3]
            assert b"event: changed" in await anext(fresh)
            cache.happened.append(Event("x", "", id=4))
            cache.fails, cache.revision = 3, 2
            assert await next_ids(fresh, 1) == [4]
            assert hub.listeners == 2
        assert hub.listeners == 0

    asyncio.run(scene())


def test_an_id_from_the_future_begins_at_the_last_event() -> None:
    async def scene() -> None:
        cache = Stumbling()
        async with Hub(cache).listening(1, 99) as pieces:  # type: ignore[arg-type]
            assert b"event: changed" in await anext(pieces)
            assert (cache.asked["events"], cache.asked["last"]) == (1, 1)

    asyncio.run(scene())


def test_many_who_come_at_once_are_no_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_LISTENERS", 2)

    async def scene() -> None:
        hub = Hub(Stumbling())  # type: ignore[arg-type]
        leave = asyncio.Event()

        async def listen() -> None:
            async with hub.listening(1, None):
                await leave.wait()

        tasks = [asyncio.create_task(listen()) for _ in range(6)]
        await asyncio.wait(tasks, timeout=PATIENCE_S, return_when=asyncio.FIRST_EXCEPTION)
        await asyncio.sleep(0.05)
        assert hub.listeners == 2
        leave.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(result, HTTPException) for result in results) == 4
        assert hub.listeners == 0

    asyncio.run(scene())


def test_a_comment_comes_where_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that hears nothing cannot tell a server that is gone."""
    monkeypatch.setattr(live, "PING_S", 0.02)
    monkeypatch.setattr(live, "LOOK_S", 0.01)

    async def scene() -> None:
        async with Hub(Stumbling()).listening(1, None) as pieces:  # type: ignore[arg-type]
            assert b"event: changed" in await anext(pieces)
            assert (await anext(pieces)).startswith(b":")

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
