"""`autotune serve` as a process: what it prints, who it lets in, and readers of a study that runs."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path

import pytest

from api.client import Client
from autotune.errors import UsageError
from tests.e2e.commands import COMMAND, autotune, document, environment_for
from tests.e2e.forked import Forked
from tests.e2e.studies import Tuner
from tests.support.not_none import not_none
from tests.support.waiting import PATIENCE_S, wait_for

TOKEN = "correct-horse-battery-staple"
ANYWHERE = "0.0.0.0"  # noqa: S104 - every one that is bound has a token


class Server:
    """The command, and what it has printed.

    Args:
        started: by an interpreter of its own, most of whose time goes to imports; others are forked.
    """

    process: subprocess.Popen[str] | Forked

    def __init__(self, home: Path, cwd: Path, *arguments: str, started: bool = False, **environment: str) -> None:
        words, variables = ["serve", *arguments], environment_for(home) | environment
        if started:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                [str(COMMAND), *words], cwd=cwd, env=variables, stdout=pipe, stderr=pipe, text=True
            )
        else:
            self.process = Forked.command(words, cwd, variables)
        self.url = not_none(self.process.stdout).readline().strip()

    def get(self, path: str, **headers: str) -> tuple[int, Mapping[str, str], str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, headers=named)  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:  # noqa: S310
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read().decode()

    def end(self, how: signal.Signals = signal.SIGINT) -> tuple[int | None, str, str]:
        """(exit code, the rest of stdout, stderr)."""
        self.process.send_signal(how)
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


def refused(*words: str, home: Path, cwd: Path) -> str:
    """What ``autotune serve`` with ``words`` says, which it does not start with."""
    process = Forked.command(["serve", *words], cwd, environment_for(home))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (2, "")
    return err


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Server]:
    made = Server(home, tmp_path, "--port", "0")
    yield made
    if made.process.poll() is None:
        made.end(signal.SIGKILL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_its_address_first_and_ends_without_a_word(home: Path, tmp_path: Path, how: signal.Signals) -> None:
    server = Server(home, tmp_path, "--port", "0", started=True)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
    assert server.get("/healthz")[0] == 200
    assert "no study yet" in server.get("/", Accept="text/html")[2]
    code, out, err = server.end(how)
    assert (code, out) == (0, "")
    assert err.count("\n") == 1, err
    assert str(home) in err
    assert not (home / "autotune.sqlite").exists(), "looking creates no database"


def niceness(process: int) -> set[int]:
    """Of all its threads."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in tasks}


@pytest.mark.parametrize(("given", "least"), [((), 10), (("--nice", "0"), 0), (("--nice", "15"), 15)])
def test_a_server_of_its_own_gives_way_to_what_is_measured(
    home: Path, tmp_path: Path, given: tuple[str, ...], least: int
) -> None:
    server = Server(home, tmp_path, "--port", "0", *given)
    assert server.get("/api/v1/studies")[0] == 200
    assert niceness(server.process.pid) == {max(least, os.nice(0))}
    assert server.end()[0] == 0


def test_a_port_in_use_is_one_sentence_if_it_was_asked_for(home: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        said = refused("--port", port, home=home, cwd=tmp_path)
    assert said.count("\n") == 1
    assert f"port {port} is in use" in said
    assert not home.exists()


def test_else_the_next_free_one_is_taken(home: Path, tmp_path: Path) -> None:
    one, two = Server(home, tmp_path), Server(home, tmp_path)
    assert one.get("/healthz")[0] == two.get("/healthz")[0] == 200
    assert one.url != two.url
    assert one.end()[0] == two.end()[0] == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--nice", "20"), "--nice"),
        (("--host", ANYWHERE, "--port", "0"), "a token is needed"),
        (("--allow-control", "--port", "0"), "--allow-control lets readers stop a study"),
    ],
)
def test_what_it_cannot_start_with_is_one_sentence(
    home: Path, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    (said,) = refused(*words, home=home, cwd=tmp_path).splitlines()
    assert sentence in said


def test_beyond_loopback_the_token_opens_and_is_printed_nowhere(home: Path, tmp_path: Path) -> None:
    server = Server(home, tmp_path, "--host", ANYWHERE, "--port", "0", started=True, AUTOTUNE_TOKEN=TOKEN)
    port = server.url.rsplit(":", 1)[1]
    server.url = f"http://127.0.0.1:{port}"
    assert server.get("/api/v1/studies")[0] == 401
    assert server.get("/api/v1/studies", Authorization=f"Bearer {TOKEN}")[0] == 200
    assert server.get("/api/v1/studies", Authorization=f"Bearer {TOKEN}", Host="evil.example")[0] == 403
    assert server.get("/healthz")[0] == 200
    argv = Path(f"/proc/{server.process.pid}/cmdline").read_text()
    code, out, err = server.end()
    assert code == 0
    assert TOKEN not in out + err + argv


def test_a_browser_logs_in_with_the_code_that_is_printed(home: Path, tmp_path: Path) -> None:
    server = Server(home, tmp_path, "--port", "0", AUTOTUNE_TOKEN=TOKEN)
    lines = [not_none(server.process.stderr).readline() for _ in range(2)]
    found = re.search(r"(http://\S+/login) with the code (\S+) \(once, within 10 minutes\)", lines[1])
    assert found is not None, lines
    assert found[1] == f"{server.url}/login"
    port = int(server.url.rsplit(":", 1)[1])
    answers = []
    for _ in range(2):
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        line.request("POST", "/login", f"code={found[2]}", {"Content-Type": "application/x-www-form-urlencoded"})
        answers.append(line.getresponse())
    assert [a.status for a in answers] == [303, 403]
    cookie = (answers[0].getheader("Set-Cookie") or "").split(";")[0]
    assert server.get("/api/v1/studies", Cookie=cookie)[0] == 200
    assert server.get("/api/v1/studies", Cookie="autotune=x")[0] == 401
    code, _, err = server.end()
    assert (code, err.count("with the code")) == (0, 1), "the wrong try told the next code, once"
    assert found[2] not in err


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all broken requests; the next one is answered as if there had been none, and nothing was a crash."""
    folder = tmp_path_factory.mktemp("attacked")
    made = Server(folder / "home", folder, "--port", "0")
    yield made
    assert "crashes" not in made.end()[2]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /api/v1/studies/1%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_broken_requests_break_nothing(attacked: Server, raw: bytes) -> None:
    port = int(attacked.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as line:
        line.sendall(raw)
        line.settimeout(20)
        answer = line.recv(65536)
    assert b"Traceback" not in answer
    assert answer == b"" or int(answer.split()[1]) < 500
    assert attacked.get("/healthz")[0] == 200


def begin_study(home: Path, **plan: object) -> Forked:
    return Tuner(home, **plan).start()


class Poller(threading.Thread):
    """Reads like the page does, eight times as often."""

    def __init__(self, server: Server, path: str, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.path, self.over = server, path, over
        self.seen: Counter[int] = Counter()

    def run(self) -> None:
        tag = ""
        while not self.over.is_set():
            status, headers, _ = self.server.get(self.path, If_None_Match=tag, Accept="text/html")
            self.seen[status] += 1
            tag = headers.get("ETag") or tag
            time.sleep(0.25)


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


@pytest.mark.slow
@pytest.mark.timeout(5 * PATIENCE_S)
def test_readers_of_a_running_study_see_it_end_and_agree_with_the_command_line(
    server: Server, home: Path, tmp_path: Path
) -> None:
    """The page, the REST answer, `best --json` and the end screen are four ways to one answer."""
    over = threading.Event()
    paths = ["/", "/studies/1", "/api/v1/studies/1", "/api/v1/studies/1/trials", "/api/v1/studies/1/recommendation"]
    readers = [Poller(server, path, over) for path in paths]
    tuner = begin_study(home, max_trials=5)
    for reader in readers:
        reader.start()
    _, err = tuner.communicate(timeout=PATIENCE_S)
    assert tuner.returncode == 0, err
    # On a busy machine a server keeps an answer for as long as thirty readings take.
    wait_for(lambda: all(reader.seen[200] and reader.seen[304] for reader in readers), seconds=3 * PATIENCE_S)
    over.set()
    for reader in readers:
        reader.join(PATIENCE_S)
        assert set(reader.seen) <= {200, 304, 404}, (reader.path, reader.seen)
        assert reader.seen[200] >= 1
        assert reader.seen[304] >= 1, reader.path

    best = document("best", home=home, cwd=tmp_path)
    assert best["why"]["rows"]
    assert best["source"] == "recommendation"
    # A server may answer from what it has just read, for thirty times as long as the reading took.
    wait_for(lambda: json.loads(server.get("/api/v1/studies/1/recommendation")[2]) == best)
    listed = document("trials", home=home, cwd=tmp_path)["trials"]
    assert json.loads(server.get("/api/v1/studies/1/trials")[2])["trials"] == listed
    status = document("status", home=home, cwd=tmp_path)
    wait_for(lambda: json.loads(server.get("/api/v1/studies/1")[2]) == status)

    screen = " ".join(autotune("best", home=home, cwd=tmp_path, timeout=PATIENCE_S).stdout.split())
    page = words(server.get("/studies/1", Accept="text/html")[2])
    for sentence in re.findall(r"\S+ \(95 % interval \S+ to \S+\)", screen):
        assert sentence in page
    assert f"{listed[0]['number']}" in page
    assert server.end() == (0, "", f"serving the studies in {home}; Ctrl-C ends\n")


@pytest.mark.slow
def test_a_tuner_is_paused_resumed_and_stopped_by_a_reader(home: Path, tmp_path: Path) -> None:
    """The server and the tuner are two processes that share nothing but the database."""
    server = Server(home, tmp_path, "--port", "0", "--allow-control", AUTOTUNE_TOKEN=TOKEN)
    client = Client(server.url, TOKEN)
    tuner = begin_study(home, max_trials=200, script={"sleep": 0.2})
    wait_for(lambda: (home / "autotune.sqlite").exists() and any(client.studies()))
    wait_for(lambda: client.status(1).counts.states.get("COMPLETE", 0) >= 1)
    client.ask(1, "pause")
    wait_for(lambda: not client.status(1).running and tuner.poll() is None)
    time.sleep(2.5)
    before = len(list(client.trials(1)))
    time.sleep(2.0)
    assert len(list(client.trials(1))) == before, "nothing begins while it is paused"
    assert client.status(1).running == []
    client.ask(1, "retry", trial=0)
    client.ask(1, "resume")
    wait_for(lambda: any(t.source == "retry" for t in client.trials(1)))
    client.ask(1, "stop")
    out, err = tuner.communicate(timeout=PATIENCE_S)
    assert tuner.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["ended_by"] == "stopped by the user"
    kinds = [e.kind for e in client.events(1) if e.kind.endswith("_requested")]
    assert kinds == ["pause_requested", "retry_requested", "resume_requested", "stop_requested"]
    with pytest.raises(UsageError, match="no tuner runs study 1"):
        client.ask(1, "stop")
    assert server.end()[0] == 0


def test_an_idle_server_sleeps(server: Server) -> None:
    """It stands beside measurements: between requests no thread of it may wake, not even to look whether to end."""
    assert server.get("/healthz")[0] == 200

    def wakes() -> int:
        found = 0
        for task in Path(f"/proc/{server.process.pid}/task").iterdir():
            words = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)
            found += int(not_none(words).group(1))
        return found

    def slept() -> bool:
        before = wakes()
        time.sleep(3)
        return wakes() - before <= 3

    wait_for(slept, "three seconds of sleep")


def test_a_connection_is_kept_between_polls(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    for _ in range(3):
        line.request("GET", "/api/v1/studies")
        answer = line.getresponse()
        assert (answer.status, json.loads(answer.read())["studies"]) == (200, [])
        assert not answer.will_close
    line.close()
