"""A server that answers from memory what another one answered: ``python -m benchmarks.stand_in PORT STREAM PATH...``.

It tells what clients cost from what a server costs. Of PATHs it repeats the answers of the server on PORT, byte for
byte; whoever asks for STREAM is sent what listeners of a study hear in a second, once a second. Prints its own port.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

from benchmarks.load import HOST, request
from benchmarks.writer import LARGE_EVENT, WRITES_A_SECOND

EVENTS_A_SECOND = int(WRITES_A_SECOND / 4)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def second() -> bytes:
    """What is heard in one, as one chunk."""
    texts = ["x" * LARGE_EVENT, *["something happened"] * (EVENTS_A_SECOND - 1)]
    events = [f'event: event\ndata: {{"id":{n},"message":"{text}"}}\nid: {n}\n\n' for n, text in enumerate(texts)]
    body = "".join((*events, 'event: changed\ndata: {"revision":1}\n\n')).encode()
    return b"%x\r\n%b\r\n" % (len(body), body)


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, answers: Mapping[bytes, bytes], stream: bytes, hearing: set[asyncio.Transport]) -> None:
        self._answers, self._stream, self._hearing = answers, stream, hearing
        self._asked = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # asyncio's own shape

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            head, _, self._asked = self._asked.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1]
            if path == self._stream:
                self._transport.write(HEAD)
                self._hearing.add(self._transport)
            else:
                self._transport.write(self._answers[path])

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own shape
        self._hearing.discard(self._transport)


async def recorded(port: int, path: str) -> bytes:
    """An answer, head and body."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request(path))
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(length)
    writer.close()
    return head + body


async def serve(port: int, stream: str, paths: list[str]) -> None:
    """Until it is ended."""
    answers = {path.encode(): await recorded(port, path) for path in paths}
    hearing: set[asyncio.Transport] = set()
    loop, chunk = asyncio.get_running_loop(), second()
    server = await loop.create_server(lambda: Answering(answers, stream.encode(), hearing), HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while True:
        await asyncio.sleep(1.0)
        for transport in tuple(hearing):
            transport.write(chunk)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
