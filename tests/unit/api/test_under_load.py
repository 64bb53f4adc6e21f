"""Many readers, and some who mean no good: everybody else is answered, and what they held is given back."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from api import server
from api.cache import GLANCE_S
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.served import Reader, Served, settings_in, whole_study
from tests.support.waiting import PATIENCE_S, wait_for

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HALF_OPEN = {
    "nothing at all": b"",
    "half a line": b"GET /heal",
    "a head without an end": HEAD,
    "a head whose body never comes": b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\ncode=",
}


@pytest.fixture
def served(reader: Reader, study: Study, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("api.live.LOOK_S", 0.02)
    made = Served(Reader(reader.cache._settings))
    yield made
    made.close()


def connection(served: Served, sent: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
    line.sendall(sent)
    return line


def status(served: Served, path: str = "/api/v1/studies/1") -> int:
    line = connection(served, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    with line, line.makefile("rb") as answer:
        found = int(answer.readline().split()[1])
        answer.read()
    return found


def drained(line: socket.socket) -> None:
    """Until the server has closed it."""
    with line:
        while line.recv(1 << 16):
            pass


@pytest.mark.parametrize("sent", HALF_OPEN.values(), ids=HALF_OPEN)
def test_a_request_that_does_not_come_whole_holds_nothing_for_ever(
    served: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    lines = [connection(served, sent) for _ in range(10)]
    assert status(served) == 200, "others are answered meanwhile"
    for line in lines:
        drained(line)
    assert status(served) == 200


def test_bytes_that_trickle_in_win_no_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    line = connection(served, HEAD)
    closed = False
    end = time.monotonic() + PATIENCE_S
    line.settimeout(0.05)
    while not closed and time.monotonic() < end:
        try:
            line.sendall(b"X-More: 1\r\n")
            closed = line.recv(100) == b""
        except TimeoutError:
            continue
        except OSError:
            closed = True
    assert closed
    line.close()


def test_an_answer_may_take_longer_than_a_request(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's request was whole at once, whatever happens after it."""
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    line = connection(served, b"GET /api/v1/studies/1/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    line.settimeout(1.0)
    with pytest.raises(TimeoutError):
        drained(line)


def test_twenty_readers_are_answered_beside_one_that_takes_nothing(served: Served) -> None:
    lazy = socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S)
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.sendall(b"GET /studies/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20)
    found: list[int] = []
    readers = [threading.Thread(target=lambda: found.append(status(served, "/studies/1"))) for _ in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert found == [200] * 20
    lazy.close()


def _files(settings: Settings) -> list[Path]:
    """The database, with its log."""
    return [path for path in Path(settings.database).parent.iterdir() if path.name.startswith("autotune.sqlite")]


def _moved(settings: Settings, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in _files(settings):
        path.rename(folder / path.name)


def test_a_database_that_is_away_is_said_and_comes_back(
    served: Served, reader: Reader, settings: Settings, tmp_path: Path
) -> None:
    before = reader.json("/api/v1/studies/1")
    stream = connection(served, b"GET /api/v1/studies/1/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").makefile(
        "rb"
    )
    assert b"200" in stream.readline()
    _moved(settings, tmp_path / "elsewhere")
    for path in ("/api/v1/studies/1", "/api/v1/studies", "/readyz", "/metrics"):
        answer = reader.ask(path)
        assert answer.status_code == 503, path
    answer = reader.ask("/api/v1/studies/1")
    assert "is away" in answer.json()["detail"]
    assert answer.headers["retry-after"]
    wait_for(lambda: status(served) == 503, "the server to see it")
    assert _files(settings) == [], "looking makes no database"
    for path in (tmp_path / "elsewhere").iterdir():
        path.rename(Path(settings.database).parent / path.name)
    assert reader.json("/api/v1/studies/1")["study"] == before["study"]
    store = open_store(settings.database)
    store.add_event(1, factories.event("after", "it is back"))
    store.close()
    wait_for(lambda: status(served) == 200, "the server to see it again")
    log_line = next(line for line in iter(stream.readline, b"") if b"it is back" in line)
    assert json.loads(log_line.partition(b": ")[2])["kind"] == "after"
    stream.close()


def test_another_database_in_its_place_is_read_from_then_on(
    reader: Reader, settings: Settings, study: Study, tmp_path: Path
) -> None:
    """SQLite goes on reading a file that has lost its name, and nobody would ever see what is written."""
    assert reader.json("/api/v1/studies/1")["study"]["name"] == study.spec.name
    other = settings_in(tmp_path / "other")
    whole_study(other, "second")
    _moved(settings, tmp_path / "elsewhere")
    _moved(other, Path(settings.database).parent)
    time.sleep(GLANCE_S)
    shown = reader.json("/api/v1/studies/1")
    assert shown["study"]["name"] == "second"
    assert [s["name"] for s in reader.json("/api/v1/studies")["studies"]] == ["second"]
    assert reader.json("/api/v1/studies/1/trials")["study"] == "second"
