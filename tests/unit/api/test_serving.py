"""The server beside a study: it must never be what fails it, and must be gone with it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api import listening
from api.listening import DEFAULT_PORT, listen, url_of
from api.serving import Address, Crashes, Serving, serving
from autotune.domain import Study
from autotune.errors import UsageError
from autotune.settings import Settings
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
KEPT_S = 25.0
"""A server that waits for its readers waits as long as it keeps an idle connection: 30 s."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def get(url: str) -> tuple[int, bytes]:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
        return answer.status, answer.read()


def servers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "autotune-serve"]


def test_it_answers_inside_the_block_and_is_gone_after(settings: Settings, study: Study) -> None:
    said: list[str] = []
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with serving(settings, said.append, port=0) as url:
        assert url is not None
        assert url.startswith("http://127.0.0.1:")
        assert get(f"{url}/healthz")[0] == 200
        assert b"first" in get(f"{url}/studies/1")[1]
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
        began = time.monotonic()
    assert time.monotonic() - began < KEPT_S, "an ending study does not wait for its page"
    assert said == []
    assert servers() == []
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/healthz")


def test_a_server_beside_a_study_leaves_the_priority_of_its_process_and_of_what_that_begins(settings: Settings) -> None:
    """Every trial is begun by this process, and a thread that gives way while it holds the interpreter holds it up."""
    own = os.nice(0)
    with serving(settings, print, port=0) as url:
        assert get(f"{url}/api/v1/studies")[0] == 200
        threads = {t.native_id for t in threading.enumerate() if t.native_id is not None}
        assert {os.getpriority(os.PRIO_PROCESS, number) for number in threads} == {own}
        asked = [sys.executable, "-c", "import os; print(os.nice(0))"]
        assert int(subprocess.check_output(asked)) == own


def poured(line: socket.socket) -> tuple[int, str]:
    """Bytes the kernel took for a reader that reads nothing, and how the connection ended; empty if it did not."""
    line.setblocking(False)
    sent, end = 0, time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            sent += line.send(bytes(4096))
        except BlockingIOError:
            time.sleep(0.02)
        except OSError as error:
            return sent, str(error)
    return sent, ""


def test_what_a_reader_does_not_take_is_bounded_in_bytes_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to itself the kernel takes megabytes for a reader that hangs, so nobody notices, and keeps them for ever."""
    monkeypatch.setattr(listening, "UNREAD_MS", 500)
    with listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        line, _ = server.accept()
        with line:
            sent, ended = poured(line)
    assert "timed out" in ended
    assert 0 < sent < 1 << 20


def test_no_answer_waits_for_the_acknowledgement_of_its_first_packet() -> None:
    with listen("127.0.0.1", 0) as server, socket.create_connection(server.getsockname()):
        line, _ = server.accept()
        with line:
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_reader_who_holds_a_connection_does_not_hold_up_the_end(settings: Settings, study: Study) -> None:
    with serving(settings, print, port=0) as url:
        assert url is not None
        port = int(url.rsplit(":", 1)[1])
        idle = socket.create_connection(("127.0.0.1", port))
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(b"GET / HTTP/1.1\r\nHost: local")
        get(f"{url}/healthz")
        began = time.monotonic()
    assert time.monotonic() - began < KEPT_S
    idle.close()
    half.close()
    assert servers() == []


def test_a_port_in_use_is_said_and_the_study_runs_without_a_page(settings: Settings, taken: int) -> None:
    said: list[str] = []
    ran = False
    with serving(settings, said.append, port=taken) as url:
        assert url is None
        ran = True
    assert ran
    assert len(said) == 1
    assert f"port {taken} is in use" in said[0]


def test_a_token_nobody_can_use_is_said_too(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", "short")
    said: list[str] = []
    with serving(settings, said.append, port=0) as url:
        assert url is None
    assert "AUTOTUNE_TOKEN" in said[0]


def test_what_fails_in_the_block_comes_out_of_it_and_the_server_ends(settings: Settings) -> None:
    with pytest.raises(ZeroDivisionError), serving(settings, print, port=0):
        raise ZeroDivisionError
    assert servers() == []


def test_two_servers_of_one_home_have_two_ports(settings: Settings, study: Study) -> None:
    with serving(settings, print) as one, serving(settings, print) as two:
        assert one is not None
        assert two is not None
        assert one != two
        assert get(f"{one}/api/v1/studies") == get(f"{two}/api/v1/studies")


def test_the_next_free_port_follows_the_usual_one() -> None:
    first = listen("127.0.0.1", None)
    second = listen("127.0.0.1", None)
    ports = [s.getsockname()[1] for s in (first, second)]
    first.close()
    second.close()
    assert DEFAULT_PORT <= ports[0] < ports[1], "unless twenty ports were taken"


@pytest.mark.parametrize(
    ("host", "port", "sentence"),
    [
        ("127.0.0.1", -1, "port -1 does not exist"),
        ("127.0.0.1", 70000, "port 70000 does not exist"),
        ("203.0.113.7", 0, "cannot listen on 203.0.113.7"),
        ("no such host", 0, "is not known"),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_a_sentence(host: str, port: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        listen(host, port)


def test_the_address_is_written_as_a_browser_reads_it() -> None:
    with listen("localhost", 0) as plain:
        port = plain.getsockname()[1]
        assert url_of(plain, "localhost") == f"http://localhost:{port}"
        assert url_of(plain, "::1") == f"http://[::1]:{port}"


def test_a_crash_is_kept_and_said_once(settings: Settings) -> None:
    said: list[str] = []
    crashes = Crashes(settings, said.append)
    for _ in range(3):
        crashes(RuntimeError("boom"))
    (file,) = settings.home.crashes.iterdir()
    assert "boom" in file.read_text()
    assert len(said) == 1
    assert str(file) in said[0]


def test_closing_twice_is_closing(settings: Settings) -> None:
    opened = Serving(settings, print, Address(port=0))
    opened.close()
    opened.close()
    assert servers() == []


def test_nothing_of_the_web_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    """`autotune --help` and every reading command would wait for it."""
    script = (
        "import sys, api.serving, autotune.cli.commands.serve, autotune.cli.app\n"
        "autotune.cli.app.build_app()\n"
        "heavy = {'fastapi', 'uvicorn', 'jinja2', 'starlette', 'sqlalchemy', 'optuna'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    ended: Any = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr
