"""HTTP readers for measuring a server: in an open loop, as fast as it answers, and listening to a stream.

Open loop: a request is due when the clock says so, whether or not the one before was answered, and its latency
counts from then. A loop that waits for each answer asks least when the server is slowest, and so hides it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

HOST = "127.0.0.1"
SMALL_BUFFER = 4096
"""Bytes the kernel keeps for a reader that hangs; it doubles them."""
LATE_S = 0.05
ONE_LOOK = 20
"""Events that a server may tell at one look, once a second, of a study that is written to as often."""
GRACE_S = 3.0
"""For reading what was sent to it before."""


@dataclass
class Seen:
    """Latencies in seconds by kind of request, and answers by status (0: none came)."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)
    """Answers that took longer than ``LATE_S``, by the second in which they were due."""

    def add(self, kind: str, seconds: float, status: int, due: float) -> None:
        """``due``: seconds from the start."""
        self.late[int(due)] += seconds > LATE_S
        self.latencies.setdefault(kind, []).append(seconds)
        self.statuses[status] += 1


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed; NaN of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000 * len(ordered)) // 1000) - 1)]


def due_times(clients: int, rate: float, seconds: float, seed: int) -> list[list[float]]:
    """For each client the seconds from the start at which its requests are due: ``rate`` a second, each with a phase
    of its own, all before ``seconds``."""
    chance = random.Random(seed)  # noqa: S311 - spreads the clients
    found = []
    for _ in range(clients):
        first = chance.uniform(0.0, 1.0 / rate)
        found.append([first + n / rate for n in range(int(seconds * rate) + 1) if first + n / rate < seconds])
    return found


def request(path: str) -> bytes:
    """What a client sends."""
    return f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip\r\n\r\n".encode()


class Line:
    """A connection that is kept, and made anew when it broke."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> int:
        """The status; 0 where the connection broke."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(HOST, self._port)
            reader, writer = self._streams
            writer.write(request(path))
            await writer.drain()
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next((int(h[15:]) for h in head.split("\r\n") if h.startswith("content-length:")), 0)
            await reader.readexactly(length)
            return int(head.split()[1])
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.close()
            return 0

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def open_loop(port: int, paths: dict[str, str], clients: int, rate: float, seconds: float, seed: int) -> Seen:
    """``clients`` ask ``rate`` times a second each, in turn for each of ``paths`` (kind to address)."""
    seen, kinds, began = Seen(), sorted(paths), time.perf_counter()

    async def client(number: int, due: Sequence[float]) -> None:
        line = Line(port)
        for turn, at in enumerate(due):
            await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
            kind = kinds[(number + turn) % len(kinds)]
            status = await line.get(paths[kind])
            seen.add(kind, time.perf_counter() - began - at, status, at)
        line.close()

    schedule = due_times(clients, rate, seconds, seed)
    await asyncio.gather(*(client(number, due) for number, due in enumerate(schedule)))
    return seen


async def closed_loop(port: int, paths: dict[str, str], clients: int, seconds: float) -> float:
    """Answers a second when ``clients`` ask again as soon as they are answered: where the server is saturated."""
    end, kinds, answered = time.perf_counter() + seconds, sorted(paths), 0

    async def client(number: int) -> None:
        nonlocal answered
        line, turn = Line(port), number
        while time.perf_counter() < end:
            status = await line.get(paths[kinds[turn % len(kinds)]])
            answered += status == 200  # not in one: what others counted while this one waited would be lost
            turn += 1
        line.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return answered / (time.perf_counter() - began)


@dataclass
class Heard:
    """What a listener got."""

    events: int = 0
    ended: bool = False
    """The server closed the stream."""
    refused: bool = False
    """It was told to come later (503)."""
    last: int = 0
    """Greatest id of an event; 0 before the first."""
    missing: int = 0
    """Ids between its first and its last that it was not told; those of one study that alone is written to follow one
    another."""

    def add_line(self, line: bytes) -> None:
        """A line of the stream."""
        self.events += line.startswith(b"event: event")
        if line.startswith(b"id:"):
            number = int(line[3:])
            self.missing += 0 if self.last == 0 else number - self.last - 1
            self.last = number


def heard_all(some: Sequence[Heard]) -> int:
    """How many were told everything from their first event to the last second's: they join while a study is written to,
    and stop between two looks at it."""
    latest = max((one.last for one in some), default=0)
    return sum(not one.ended and one.events > 0 and one.missing == 0 and one.last >= latest - ONE_LOOK for one in some)


async def listen(port: int, path: str, heard: Heard, over: Callable[[], bool]) -> None:
    """Listen to a stream until ``over``."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 20)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    heard.refused = b" 503 " in await reader.readline()
    while not over() and not heard.refused:
        try:
            line = await asyncio.wait_for(reader.readline(), 0.5)
        except TimeoutError:
            continue
        except OSError:
            line = b""
        if not line:
            heard.ended = True
            break
        heard.add_line(line)
    writer.close()


async def hang(port: int, path: str, heard: Heard, over: Callable[[], bool]) -> None:
    """Ask for a stream and take nothing of it until ``over``; only then see whether the server has ended it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        line.setblocking(False)
        await loop.sock_connect(line, (HOST, port))
        await loop.sock_sendall(line, f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        while not over():
            await asyncio.sleep(0.1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                heard.ended = await _drained(loop, line)


async def _drained(loop: asyncio.AbstractEventLoop, line: socket.socket) -> bool:
    """True when everything was read up to the end, or the connection was broken off; else it waits for more."""
    try:
        while await loop.sock_recv(line, 1 << 16):
            pass
    except OSError:
        return True
    return True
