"""The typed client, against a real server."""

import itertools
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from api.guard.security import Access
from api.schemas.matches import Item
from autotune.documents.memory_timeline import text_of
from autotune.domain import Study
from autotune.errors import MachineError, NotFoundError, UsageError
from autotune.recommendation.current import attempt_paths
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.served import TOKEN, Reader, Served, settings_in, whole_study


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = settings_in(tmp_path_factory.mktemp("served"))
    whole_study(settings)
    reader = Reader(settings, Access(token=TOKEN), allow_control=True)
    served = Served(reader)
    yield served.url
    served.close()
    reader.cache.close()


@pytest.fixture
def client(url: str) -> Client:
    return Client(url, TOKEN)


def test_everything_there_is_comes_typed(client: Client) -> None:
    (study,) = client.studies()
    assert (study.name, client.find(None), client.find("first"), client.find("1")) == ("first", 1, 1, 1)
    trials = list(client.trials(1))
    assert [t.number for t in client.trials(1, sort="number", limit=2)] == sorted(t.number for t in trials)
    assert {t.number for t in client.trials(1, feasible=True)} == {t.number for t in trials if t.feasible}
    assert client.trial(1, 0).trial.cycles
    assert client.status(1).counts.states["COMPLETE"] > 0
    answer = client.recommendation(1).recommendation
    assert answer is not None
    (item,) = client.recommendations(model="small", limit=1).items
    assert isinstance(item, Item)
    assert item.row == answer.rows[0]
    assert "per_device_train_batch_size" in client.file(1, "trl")
    assert [e.id for e in client.events(1)] == list(range(1, 1 + len(list(client.events(1)))))
    cycles = client.trial(1, 0).trial.cycles
    assert list(client.cycles(1, 0, limit=1)) == sorted(cycles, key=lambda c: (c.index, c.rank))
    assert {c.kind.value for c in client.cycles(1, 0, kind=["recorded"])} == {"recorded"}
    (seen,) = client.fingerprints(1)
    assert client.reading(1).study.spec.name == "first"
    assert [t.number for t in client.reading(1).trials] == sorted(t.number for t in trials)
    assert [note.name for note in client.trial_reading(1, 0).notes] == ["lengths"]
    assert seen.hardware["memory_bytes"] == factories.fingerprint().hardware["memory"]


def test_events_are_listened_to_and_a_listener_goes_on_after_its_last(client: Client) -> None:
    every = list(client.events(1))
    assert len(every) > 3
    assert list(itertools.islice(client.listen(1, after=0), len(every))) == every
    assert list(itertools.islice(client.listen(1, after=every[-3].id), 2)) == every[-2:]


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda c: next(c.listen(9)), NotFoundError, "no study 9"),
        (lambda c: c.status(9), NotFoundError, "no study 9"),
        (lambda c: c.find("other"), NotFoundError, "no study 'other'"),
        (lambda c: list(c.trials(1, knob="x:1")), UsageError, "no such knob"),
        (lambda c: c.ask(1, "stop"), UsageError, "no tuner runs study 1"),
        (lambda c: c.ask(1, "explode"), UsageError, "body.action"),
        (lambda c: c.file(1, "megatron"), UsageError, "query.format"),
        (lambda c: c.file(1, "verl"), UsageError, "study 1 is of trl, not of verl"),
    ],
)
def test_a_refusal_is_the_error_it_is_elsewhere(client: Client, act: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        act(client)


def test_a_wrong_token_says_where_it_belongs_and_is_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="AUTOTUNE_TOKEN") as caught:
        Client(url, "wrong-horse-battery-staple").status(1)
    assert "horse" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["", "7788", "file:///etc/passwd", "http://", "http://u:p@h:1", "ftp://h", "http://h:x"]
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="no address of a server"):
        Client(address)


def test_a_server_that_is_not_there_or_another(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with pytest.raises(MachineError, match="does not answer"):
        Client(f"http://127.0.0.1:{port}").status(1)
    with pytest.raises(NotFoundError, match="/nothing/here/api"):
        Client(f"{url}/nothing/here", TOKEN).status(1)


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """The token was meant for one server."""
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_address[1]}/stolen")  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(UsageError, match="302"):
            Client(f"http://127.0.0.1:{server.server_address[1]}", TOKEN).status(1)
        server.shutdown()
    assert asked == ["/api/v1/studies/1"]


def test_memory_over_time_comes_typed_or_is_not_found(settings: Settings, study: Study) -> None:
    path = attempt_paths(settings.home, study, factories.finished(1)).memory
    path.parent.mkdir(parents=True)
    path.write_text(text_of(factories.timeline()))
    reader = Reader(settings)
    served = Served(reader)
    client = Client(served.url)
    assert max(point.host_bytes for point in client.memory(1, 1).host) == 3 * factories.GIB
    assert client.memory(1, 1, attempt=1) == client.memory(1, 1)
    for number, attempt in ((0, None), (1, 2)):
        with pytest.raises(NotFoundError, match=r"memory timeline|no attempt 2"):
            client.memory(1, number, attempt)
    served.close()
    reader.cache.close()


def test_a_log_is_followed(settings: Settings, study: Study) -> None:
    store = open_store(settings.database)
    path = attempt_paths(settings.home, study, store.trial(1, 1)).log
    store.close()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")
    reader = Reader(settings)
    served = Served(reader)
    client = Client(served.url)
    assert client.log(1, 1) == b"one\n"
    assert client.log(1, 1, first_byte=4) == b""
    path.write_bytes(b"one\ntwo\n")
    assert client.log(1, 1, first_byte=4) == b"two\n"
    served.close()
    reader.cache.close()


def test_a_proxy_is_not_told_the_token_of_this_machine(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters set ``http_proxy`` for everybody; 127.0.0.1 is another machine there."""
    asked: list[tuple[str, str | None]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            self.send_error(502)

        def log_message(self, *_: Any) -> None: ...

    proxy = HTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_address[1]}")
    assert Client(url, TOKEN).status(1).study.name == "first"
    assert asked == []
    with pytest.raises(MachineError):
        Client("http://box.invalid:7788", TOKEN).status(1)
    assert [path for path, _ in asked] == ["http://box.invalid:7788/api/v1/studies/1"], "others go the usual way"
    proxy.shutdown()
    proxy.server_close()
