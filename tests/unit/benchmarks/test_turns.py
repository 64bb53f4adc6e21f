"""What a writer's turns say of its readers, and the server that stands in for the one that is measured."""

from __future__ import annotations

import asyncio
import itertools
import math
import subprocess
import sys

import pytest

from benchmarks.load import HOST, Heard, Line, listen
from benchmarks.stand_in import second
from benchmarks.turns import ALONE, KINDS, SERVED, SETTLE_S, STAND_IN, Turn, slower, take
from benchmarks.writer import Write, Written


def taken(rounds: int, seconds: float = 10.0) -> list[Turn]:
    clock = [100.0]

    def act(kind: str, seconds: float) -> None:
        clock[0] += seconds + 0.25

    return take(rounds, seconds, act, lambda: clock[0])


def test_each_round_has_every_kind_and_begins_with_another() -> None:
    turns = taken(6)
    assert [t.kind for t in turns[::3]] == [*KINDS, *KINDS]
    for number in range(6):
        assert {t.kind for t in turns if t.round == number} == set(KINDS)
    assert all(t.end - t.begin == pytest.approx(10.0 - SETTLE_S) for t in turns)
    assert all(later.begin >= before.end for before, later in itertools.pairwise(turns))
    assert all(t.end > t.begin for t in taken(1, 0.5)), "a short one is not settled for the whole of it"


def writes_of(turns: list[Turn], took: dict[str, float], drift: float = 0.0) -> list[Write]:
    """Two a second, each as long as its kind says, on a machine that becomes slower with every round."""
    found: list[Write] = []
    for turn in turns:
        each = took[turn.kind] * (1.0 + drift) ** turn.round
        found += [(turn.begin + n / 2, each) for n in range(int(2 * (turn.end - turn.begin)))]
        found.append((turn.end + 0.1, 99.0))
    return found


def test_a_machine_that_becomes_slower_is_not_put_down_to_the_readers() -> None:
    turns = taken(6)
    found = slower(writes_of(turns, {ALONE: 0.003, SERVED: 0.0033, STAND_IN: 0.0031}, drift=0.5), turns)
    assert found[SERVED]["value"] == pytest.approx(0.1)
    assert found[STAND_IN]["value"] == pytest.approx(0.1 / 3)
    assert found[SERVED]["low"] == pytest.approx(found[SERVED]["high"])
    assert found[SERVED]["rounds"] == 6


def test_rounds_that_differ_widen_the_interval_and_one_alone_has_none() -> None:
    turns = taken(2)
    writes = [(t.begin, 0.003 if t.kind == ALONE else 0.003 * (1.0 + 0.1 * t.round)) for t in turns]
    found = slower(writes, turns)[SERVED]
    assert found["low"] < 0.0 < found["value"] < 0.1 < found["high"]
    alone = slower([w for w, t in zip(writes, turns, strict=True) if t.round == 0], turns)[SERVED]
    assert (alone["value"], alone["rounds"]) == (pytest.approx(0.0), 1)
    assert math.isnan(alone["low"])
    assert math.isnan(alone["high"])


def test_a_turn_without_a_write_says_nothing() -> None:
    turns = taken(1)
    assert slower([(t.begin, 0.003) for t in turns if t.kind != ALONE], turns) == {}
    assert set(slower([(t.begin, 0.003) for t in turns if t.kind != SERVED], turns)) == {STAND_IN}


def test_a_writer_is_told_by_its_mean_and_its_slow_writes() -> None:
    figures = Written(tuple((float(n), 0.001 * n) for n in range(1, 101))).figures()
    assert figures == {"mean": pytest.approx(0.0505), "p95": pytest.approx(0.095), "writes": 100.0}


def test_the_stand_in_repeats_the_answers_byte_for_byte_and_streams() -> None:
    """Else what it takes of the clients would be no measure of what they cost."""
    body = b"x" * 5000
    answer = b"HTTP/1.1 200 OK\r\nx-a: b\r\ncontent-length: 5000\r\n\r\n" + body

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async def scene() -> None:
        server = await asyncio.start_server(handler, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        argv = [sys.executable, "-m", "benchmarks.stand_in", str(port), "/stream", "/a", "/b?c=d"]
        process = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            stand_in = int(await process.stdout.readline())
            reader, writer = await asyncio.open_connection(HOST, stand_in)
            for path in ("/a", "/b?c=d"):
                writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert await reader.readexactly(len(answer)) == answer
            writer.close()
            line, heard = Line(stand_in), Heard()
            assert await line.get("/a") == 200
            line.close()
            async with asyncio.timeout(20):
                await listen(stand_in, "/stream", heard, lambda: heard.events >= 2 * second().count(b"event: event"))
            assert not heard.ended
        finally:
            process.terminate()
            await process.wait()
            server.close()

    asyncio.run(scene())
