"""Events as pages, and as a stream that loses nothing and that nobody can block."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from api.live import hub as hub_module
from api.live.hub import LARGEST_QUEUE, PIECE_BYTES, Hub, Listener, SseMessage, event_message, revision_message
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
    monkeypatch.setattr(hub_module.Hub.__init__, "__defaults__", (0.02,))
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


def test_with_its_last_listener_a_study_is_no_longer_watched(reader: Reader, study: Study) -> None:
    async def scene() -> None:
        hub = Hub(reader.cache, look_s=0.01)
        one, two = await hub.join(1, None), await hub.join(1, 0)
        assert (hub.listeners, len(hub._watchers)) == (2, 1)
        hub.leave(one)
        hub.leave(one)
        assert (hub.listeners, len(hub._watchers)) == (1, 1)
        hub.leave(two)
        assert (hub.listeners, len(hub._watchers)) == (0, 0)

    asyncio.run(scene())


def test_too_many_listeners_are_told_to_come_later(
    reader: Reader, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MOST_LISTENERS", 0)
    answer = reader.ask(f"{EVENTS}/stream")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "30"


def test_a_listener_that_is_too_far_behind_is_dropped_and_the_others_are_not(reader: Reader, study: Study) -> None:
    async def scene() -> None:
        hub = Hub(reader.cache, look_s=3600.0)
        slow, quick = await hub.join(1, None), await hub.join(1, None)
        taken: list[SseMessage] = []

        async def take() -> None:
            async for batch in quick.batches():
                taken.extend(batch)

        taking = asyncio.create_task(take())
        await asyncio.sleep(0.05)
        for number in range(2, LARGEST_QUEUE + 10):
            hub._tell(1, event_message(Event("x", "", id=number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert (slow.dropped, quick.dropped, hub.dropped, hub.listeners) == (True, False, 1, 1)
        assert [entry.id for entry in taken if entry.id is not None] == list(range(2, LARGEST_QUEUE + 10))
        assert [b async for b in slow.batches()] == [], "its stream ends; it comes again with its last id"
        taking.cancel()

    asyncio.run(scene())


def test_of_revisions_only_the_newest_waits() -> None:
    listener = Listener(None, 1, 0)  # type: ignore[arg-type]
    for revision in range(10 * LARGEST_QUEUE):
        listener.put(revision_message(revision))
    assert not listener.dropped
    assert list(listener._waiting) == [revision_message(10 * LARGEST_QUEUE - 1)]


def test_who_does_not_read_is_disconnected_and_nothing_crashes(
    reader: Reader, study: Study, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket fills; without a bound its place, its task and what waits for it would stay for ever."""
    monkeypatch.setattr(hub_module.Hub.__init__, "__defaults__", (0.02,))
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
    wait_for(lambda: tally.readers_cut_off, "the count of who was cut off")
    assert tally.readers_cut_off == 1, "and who watches the server is told"
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

    def last_event_id(self, study_id: int) -> int:
        self.asked["last"] += 1
        return len(self.happened)

    def events(self, study_id: int, after: int, limit: int) -> tuple[Event, ...]:
        self.asked["events"] += 1
        if self.fails > 0:
            self.fails -= 1
            raise self.error("gone")
        return tuple(e for e in self.happened if e.id > after)


async def first_ids(listener: Listener, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(10):
        async for batch in listener.batches():
            found += [entry.id for entry in batch if entry.id is not None]
            if len(found) >= count:
                break
    return found


def test_what_could_not_be_read_is_not_left_out() -> None:
    """A stream that went on without it would move the reader's last id past it for ever."""

    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=3600.0)  # type: ignore[arg-type]
        cache.fails = 1
        listener = await hub.join(1, 1)
        assert [batch async for batch in listener.batches()] == [], "its stream ends, with its last id where it was"
        assert listener.after == 1
        hub.leave(listener)
        again = await hub.join(1, listener.after)
        assert await first_ids(again, 2) == [2, 3]
        hub.leave(again)

    asyncio.run(scene())


def test_a_look_that_failed_is_made_up_for() -> None:
    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.01)  # type: ignore[arg-type]
        listener = await hub.join(1, None)
        reading = asyncio.create_task(first_ids(listener, 1))
        await asyncio.sleep(0.05)
        cache.fails = 3
        cache.happened.append(Event("x", "", id=4))
        cache.revision = 2
        assert await reading == [4]
        hub.leave(listener)

    asyncio.run(scene())


def test_a_watcher_that_broke_leaves_nobody_waiting() -> None:
    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.01)  # type: ignore[arg-type]
        listener = await hub.join(1, None)
        reading = asyncio.create_task(first_ids(listener, 1))
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        cache.error, cache.fails, cache.revision = ValueError, 1, 2
        assert await reading == []
        assert hub._watchers == {}
        hub.leave(listener)
        again = await hub.join(1, None)
        assert len(hub._watchers) == 1
        cache.happened.append(Event("x", "", id=4))
        cache.revision = 3
        assert await first_ids(again, 1) == [4]
        hub.leave(again)

    asyncio.run(scene())


def test_many_who_come_at_once_are_no_more_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MOST_LISTENERS", 2)

    async def scene() -> None:
        hub = Hub(Stumbling(), look_s=3600.0)  # type: ignore[arg-type]
        came = await asyncio.gather(*(hub.join(1, None) for _ in range(6)), return_exceptions=True)
        assert hub.listeners == 2
        assert sum(isinstance(one, HTTPException) for one in came) == 4
        for one in came:
            if isinstance(one, Listener):
                hub.leave(one)
        assert (hub.listeners, hub._joining) == (0, 0)

    asyncio.run(scene())


def test_what_waits_goes_in_one_piece_and_a_comment_where_nothing_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece costs the server as much as a small answer, for each of its listeners."""
    monkeypatch.setattr(hub_module, "PING_S", 0.05)

    async def scene() -> None:
        hub = Hub(Stumbling(), look_s=3600.0)  # type: ignore[arg-type]
        listener = await hub.join(1, None)
        pieces = listener.pieces()
        begun = await anext(pieces)
        assert begun.count(b"event: changed") == 1
        small = [event_message(Event("x", "", id=n)) for n in range(4, 9)]
        for entry in (*small, revision_message(7)):
            hub._tell(1, entry)
        assert await anext(pieces) == b"".join(entry.wire for entry in small) + revision_message(7).wire
        assert (await anext(pieces)).startswith(b":"), "a reader that hears nothing cannot tell a server that is gone"
        large = [event_message(Event("x", "y" * (PIECE_BYTES - 1000), id=n)) for n in range(9, 12)]
        for entry in large:
            hub._tell(1, entry)
        assert [await anext(pieces) for _ in large] == [entry.wire for entry in large], "who reads slowly is noticed"
        hub.leave(listener)

    asyncio.run(scene())


def test_what_happens_is_put_into_bytes_once_for_all_listeners() -> None:
    async def heard(listener: Listener) -> SseMessage:
        async for batch in listener.batches():
            for entry in batch:
                if entry.id == 4:
                    return entry
        raise AssertionError("the stream ended")

    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.01)  # type: ignore[arg-type]
        listeners = [await hub.join(1, None) for _ in range(3)]
        hearing = [asyncio.create_task(heard(listener)) for listener in listeners]
        cache.happened.append(Event("x", "", id=4))
        cache.revision = 2
        first, *others = await asyncio.gather(*hearing)
        assert all(entry is first for entry in others)
        for listener in listeners:
            hub.leave(listener)

    asyncio.run(asyncio.wait_for(scene(), 10))


def test_those_who_come_at_once_ask_the_database_once_and_miss_nothing() -> None:
    """A page open on fifty screens comes again fifty times when its server was started anew."""

    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.02)  # type: ignore[arg-type]
        came = await asyncio.gather(*(hub.join(1, None) for _ in range(50)))
        hearing = [asyncio.create_task(first_ids(listener, 2)) for listener in came]
        assert cache.asked["last"] == 1
        cache.happened += [Event("x", "", id=4), Event("x", "", id=5)]
        late, again = await hub.join(1, None), await hub.join(1, 4)
        assert (late.after, again.after) == (3, 4), "4 has happened, though nobody was told yet"
        cache.revision = 2
        assert [await one for one in hearing] == [[4, 5]] * 50
        assert await first_ids(late, 2) == [4, 5]
        assert await first_ids(again, 1) == [5]
        assert cache.asked["events"] == 1, "what all are told is read once"
        missed = await hub.join(1, 1)
        assert await first_ids(missed, 4) == [2, 3, 4, 5]
        assert cache.asked["events"] == 2
        for listener in (*came, late, again, missed):
            hub.leave(listener)
        assert (hub._watchers, hub._beginnings) == ({}, {})

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_who_comes_with_one_that_goes_at_once_is_told_all_the_same() -> None:
    """Both waited for the same question to the database; the first took the watcher with it."""

    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.01)  # type: ignore[arg-type]

        async def come_and_go() -> None:
            hub.leave(await hub.join(1, None))

        _, stayed = await asyncio.gather(come_and_go(), hub.join(1, None))
        cache.happened.append(Event("x", "", id=4))
        cache.revision = 2
        assert await first_ids(stayed, 1) == [4]
        assert len(hub._watchers) == 1
        hub.leave(stayed)

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


def test_who_comes_while_the_database_cannot_be_read_is_told_so() -> None:
    async def scene() -> None:
        cache = Stumbling()
        hub = Hub(cache, look_s=0.01)  # type: ignore[arg-type]
        first = await hub.join(1, None)
        cache.fails, cache.revision = 10**9, 2
        while cache.asked["events"] < 2:
            await asyncio.sleep(0.01)

        def gone(study_id: int) -> int:
            raise StoreError("gone")

        cache.last_event_id = gone  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await hub.join(1, None)
        assert (hub.listeners, hub._joining, hub._beginnings) == (1, 0, {})
        hub.leave(first)

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
