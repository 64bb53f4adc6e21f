"""What the benchmark of a server under load tells of it."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from benchmarks import load
from benchmarks.load import Heard, half_open, listen
from benchmarks.service_load import SETTLED_MINUTES, Asked, growth, table

MIB = 2**20


def test_memory_that_grows_is_told_from_memory_that_settled() -> None:
    flat = [100 * MIB, 180 * MIB, 199 * MIB, *[200 * MIB] * 20]
    assert growth(flat, 22) == pytest.approx(0.0, abs=1.0)
    leaking = [(100 + n) * MIB for n in range(20)]
    assert growth(leaking, 19) == pytest.approx(60.0 * MIB)
    assert growth(flat[: SETTLED_MINUTES + 2], 4) is None


def test_a_request_that_is_never_ended_is_timed_until_the_server_closes_it() -> None:
    async def scene() -> list[float]:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 0.2)
            writer.close()

        server = await asyncio.start_server(handler, load.HOST, 0)
        end = time.perf_counter() + 1.5
        held = await half_open(server.sockets[0].getsockname()[1], lambda: time.perf_counter() >= end)
        server.close()
        return held

    held = asyncio.run(scene())
    assert held
    assert min(held) >= 0.15


@pytest.mark.parametrize(("status", "refused"), [("200 OK", False), ("503 Later", True)])
def test_a_listener_knows_that_it_was_told_to_come_later(status: str, refused: bool) -> None:
    async def scene() -> Heard:
        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 {status}\r\n\r\n".encode() + b"event: event\nid: 1\n\n")
            writer.close()

        server = await asyncio.start_server(handler, load.HOST, 0)
        heard = Heard()
        await asyncio.wait_for(listen(server.sockets[0].getsockname()[1], "/", heard, lambda: False), 30)
        server.close()
        return heard

    heard = asyncio.run(scene())
    assert (heard.refused, heard.events) == (refused, 0 if refused else 1)


def test_the_table_says_what_became_of_everybody() -> None:
    found = {
        "latencies_s": {"page": {"p50": 0.01, "p95": 0.02, "p99": 0.2, "requests": 9}},
        "statuses": {"200": 9},
        "listeners": {"heard_all": 100, "refused": 100, "all": 200},
        "slow_dropped": 4,
        "half_open_held_s": [20.0, 20.1],
        "resident_bytes": [100 * MIB, 110 * MIB, 120 * MIB, *[121 * MIB] * 5],
        "statuses_without_database": {"before": {"200": 5}, "away": {"503": 5}, "back": {"200": 5}},
        "cycles_slower": {"served": {"value": 0.01, "low": -0.01, "high": 0.03, "rounds": 6.0}},
    }
    text = table(Asked(minutes=7.0), found)
    assert "| page | 10.0 | 20.0 | 200.0 | 9 |" in text
    assert "100 heard everything, 100 of 200 were told to come later" in text
    assert "of 5 that take nothing 4 were cut off" in text
    assert "2 closed by the server, after 20.0 to 20.1 s" in text
    assert "+0.0 MiB an hour from minute 3 on" in text
    assert "database away: {'503': 5}" in text
    assert "cycles in turns, 6 rounds, beside the server: +1.0 %" in text
