"""What the API's benchmark counts and when it asks."""

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.api import load
from benchmarks.api.__main__ import Asked, table
from benchmarks.api.load import ONE_LOOK, Heard, closed_loop, due_times, hang, heard_all, open_loop, quantile
from benchmarks.api.many_trials import fill


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=300), share=st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_a_value_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) < share * len(values) + 1e-9


def test_of_nothing_there_is_no_quantile() -> None:
    assert math.isnan(quantile([], 0.5))


@pytest.mark.parametrize(("clients", "rate", "seconds"), [(200, 1.0, 60.0), (3, 2.5, 4.0), (1, 10.0, 0.3)])
def test_each_client_asks_at_its_rate_and_not_all_at_once(clients: int, rate: float, seconds: float) -> None:
    schedule = due_times(clients, rate, seconds, 7)
    assert schedule == due_times(clients, rate, seconds, 7)
    assert len(schedule) == clients
    for due in schedule:
        assert all(0 <= at < seconds for at in due)
        assert abs(len(due) - seconds * rate) <= 1
        assert all(later - at == pytest.approx(1 / rate) for at, later in itertools.pairwise(due))
    assert clients == 1 or len({due[0] for due in schedule}) == clients


def test_a_study_of_many_trials_is_one_the_store_could_have_written(tmp_path: object) -> None:
    settings = read_settings({"AUTOTUNE_HOME": str(tmp_path)})
    settings.home.prepare()
    study = fill(settings.home.database, 40)
    store = open_store(settings.database)
    trials = store.trials(study.id)
    assert [t.number for t in trials] == list(range(40))
    assert len({t.configuration for t in trials}) >= 39
    assert sum(t.feasible for t in trials) == 36
    assert all(len(t.cycles) == 3 and t.cycles[0].phases for t in trials if t.feasible)
    assert all(t.state.is_finished and t.outcome is not None for t in trials)
    assert store.last_event_id(study.id) == 40
    assert store.events(study.id)[-1].trial == 39
    store.close()


def test_the_table_says_what_was_missed() -> None:
    figures = {"p50": 0.01, "p95": 0.02, "p99": 0.2, "requests": 9}
    found = {
        "latencies_s": {"trials page": figures},
        "statuses": {"200": 8, "0": 1},
        "answers_shared": 7,
        "cores": {"server": 0.25, "clients": 0.5},
        "writer_slower": (0.2, 0.1, 0.3),
        "write_beside_s": {"mean": 0.0012},
        "saturation_answers_a_second": 300.0,
        "listeners_that_heard_all": 3,
        "slow_listener_dropped": False,
        "first_reading_s": 1.0,
        "settled_s": 7.0,
        "late": {"0": 12, "31": 3},
    }
    text = table(Asked(10, 1.0, 9, 1.0, 3, 0), found)
    assert text.count("missed") == 2
    assert "NOT dropped" in text
    assert (
        "a write beside readers: 1.20 ms; longer than alone, in 6 rounds of turns, by +20.0 % (95 % interval +10.0"
        in text
    )
    assert "| trials page | 10.0 | 20.0 | 200.0 | 9 |" in text
    assert "7 of them another reader's too" in text
    assert "the server rested 7.0 s later" in text
    assert "answers later than 50 ms: 15, due in the seconds 0 (12), 31 (3)" in text
    assert "cores in use meanwhile: server 0.25, clients 0.50" in text


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def beside(handler: Handler, act: Callable[[int], Awaitable[object]]) -> None:
    """What ``act`` does with the port of a server that answers as ``handler`` does."""
    server = await asyncio.start_server(handler, load.HOST, 0)
    try:
        await act(server.sockets[0].getsockname()[1])
    finally:
        server.close()


@pytest.mark.parametrize(("how", "ended"), [("stays", False), ("ends", True), ("breaks off", True)])
def test_a_reader_that_hung_knows_whether_it_was_dropped(
    how: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "GRACE_S", 0.3)
    heard, open_lines = Heard(), []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x" * 1000)
        open_lines.append(writer)
        if how == "ends":
            writer.close()
        elif how == "breaks off":
            writer.transport.abort()

    asyncio.run(beside(handler, lambda port: hang(port, "/", heard, lambda: bool(open_lines))))
    assert heard.ended is ended


def test_a_request_that_was_due_while_the_server_paused_counts_as_late() -> None:
    """A reader that waits for its answer before it asks again would count one late answer, whatever the pause."""
    answered = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                answered += 1
                await asyncio.sleep(0.5 if answered == 3 else 0)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    seen = []

    async def act(port: int) -> None:
        seen.append(await open_loop(port, {"x": "/"}, 1, 20.0, 1.0, 0))

    asyncio.run(beside(handler, act))
    assert seen[0].statuses == {200: 20}
    late = [s for s in seen[0].latencies["x"] if s >= 0.2]
    assert len(late) >= 4
    assert max(late) >= 0.5


def test_of_many_clients_every_answer_is_counted() -> None:
    answered = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                answered += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    began, found = time.perf_counter(), []

    async def act(port: int) -> None:
        found.append(await closed_loop(port, {"x": "/"}, 8, 1.0))

    asyncio.run(beside(handler, act))
    took = time.perf_counter() - began
    assert answered > 8
    assert found[0] * took >= answered, "a second of its own holds no fewer"
    assert found[0] * 1.0 <= answered


def heard_of(*ids: int) -> Heard:
    found = Heard()
    for number in ids:
        for line in (b"data: {}\n", b"event: event\n", b"id: %d\n" % number, b"\n"):
            found.add_line(line)
    return found


def test_a_listener_heard_all_from_its_first_event_without_a_gap_to_the_last_look() -> None:
    late, gap, early_end = heard_of(4, 5, 6), heard_of(2, 3, 5, 6), heard_of(2, 3)
    whole = heard_of(*range(2, 7))
    assert (whole.events, whole.missing, gap.missing, late.missing) == (5, 0, 1, 0)
    assert heard_all([whole, late, gap, early_end, Heard()]) == 3, "one look behind is none that missed anything"
    behind = heard_of(2, 3)
    assert heard_all([behind, heard_of(*range(2, 5 + ONE_LOOK))]) == 1
    early_end.ended = True
    assert heard_all([whole, early_end]) == 1
