"""The reading commands print the same of a server (``--url``) as of the database and the home it serves.

What differs, and nothing else: ``best`` names no folder of another machine, and its next command asks the server again;
``export`` does not get the prompts, which stay where the study ran, and says which file is missing.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.guard.security import Access
from api.routes import studies
from autotune.documents import codec
from autotune.documents.memory_timeline import text_of
from autotune.domain import Study
from autotune.recommendation import current
from autotune.recommendation.current import TrialReading, attempt_paths
from autotune.recommendation.reading import ReadingPage, StudyReading, read_study
from autotune.settings import HomePaths, Settings, read_settings
from autotune.store import open_store
from tests.support import factories
from tests.support.imports import of
from tests.support.recorded import copied_study, record
from tests.support.served import Reader, Served, settings_in, usual_study, whole_study
from tests.unit.cli.conftest import Run
from trainer.child.contract import PhaseMark

TOKEN = "correct-horse-battery-staple"
COMMANDS = [
    ("status",),
    ("trials",),
    ("trials", "--state", "fail"),
    ("trials", "--kind", "confirm", "--sort", "number"),
    ("trials", "--state", "running", "--kind", "search", "--sort", "speed"),
    *(("show", str(number)) for number in range(4)),
    ("best",),
]
MISTAKES = [
    ("status", "frist"),
    ("show", "99"),
    ("export", "--trial", "99"),
    ("export", "--trial", "0", "--native-only"),
    ("export", "--format", "verl"),
    ("best", "0"),
]


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The address of a server of these studies."""
    reader = Reader(settings, Access(token=TOKEN))
    served = Served(reader)
    yield served.url
    served.close()
    reader.cache.close()
    assert reader.crashes == []


def running(home: HomePaths, study: Study) -> None:
    """Everything a screen shows, added to the usual study: notes, logs, memory, a verified figure, a sign of life."""
    store = open_store(home.database)
    store.save_fingerprint(study.id, factories.fingerprint(), factories.NOW)
    store.add_event(study.id, factories.event("session_started", data={"wall_s": 600.0, "max_trials": 9}))
    store.add_event(study.id, factories.event("verified", "verified: observed 81k tokens/hour"))
    store.add_note(study.id, 3, 1, factories.note("engine_has", gpu_memory_utilization=0.5))
    store.add_note(study.id, 3, 1, factories.note("gradient", change="fp8", cosine=float("nan"), ratio=0.95))
    store.close()
    for number in (1, 2, 3):
        paths = attempt_paths(home, study, factories.trial(number, attempt=1))
        paths.root.mkdir(parents=True)
        paths.log.write_bytes(b"".join(b"\x1b[31mline %d\x1b[0m \xff\n\n" % n for n in range(40)))
        paths.memory.write_text(text_of(factories.timeline()))
    mark = PhaseMark(attempt_paths(home, study, factories.trial(3, attempt=1)).phase)
    mark.set("update", 2, "recorded")
    mark.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[HomePaths, str]]]:
    """A study that runs and one that has ended with a recommendation: the home of each, and a server of it."""
    found = {name: settings_in(tmp_path_factory.mktemp(name)) for name in ("running", "ended")}
    running(found["running"].home, copied_study("usual-study", found["running"].database, usual_study))
    prompts = found["ended"].home.root / "prompts.jsonl"
    prompts.write_text('{"prompt": "1 + 1", "entry": "{}"}\n')
    whole_study(found["ended"], workload=factories.workload(prompts=str(prompts)))
    with serving(found["running"]) as one, serving(found["ended"]) as other:
        yield {name: (found[name].home, url) for name, url in (("running", one), ("ended", other))}


@pytest.fixture(params=["running", "ended"])
def recorded(request: Any, home: HomePaths, served: Any, monkeypatch: pytest.MonkeyPatch) -> HomePaths:
    """Of one of the two studies, which are only read; every clock that is asked for an age shows one time."""
    found: HomePaths = served[request.param][0]
    monkeypatch.setenv("AUTOTUNE_HOME", str(found.root))
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    monkeypatch.setattr(current, "time", SimpleNamespace(time=lambda: 2e9))
    return found


@pytest.fixture
def url(recorded: HomePaths, served: Any) -> str:
    """Of the server of ``recorded``."""
    return next(url for home, url in served.values() if home == recorded)


def places(home: HomePaths) -> list[tuple[str, str]]:
    return [("--home", str(home.root)), ("--database", str(home.database))]


@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_server_is_shown_as_its_own_machine_shows_it(
    autotune: Run, recorded: HomePaths, url: str, command: tuple[str, ...], as_json: tuple[str, ...]
) -> None:
    code, out, err = autotune(*command, *as_json, "--url", url)
    assert code == 0
    assert out or err
    for place in places(recorded)[: 2 if command in (("status",), ("best",)) else 1]:
        here = autotune(*command, *as_json, *place)
        if command == ("best",) and not as_json:
            own, sent = parts(here[1]), parts(out)
            differ = [part for part in sent if part not in own]
            more = ("more", f"autotune best --why --url {url}")
            assert differ == [more, ("next", f"autotune export first --url {url}")]
            assert [p for p in sent if p not in differ] == [p for p in own if p[0] not in ("more", "next")]
        else:
            assert (here[0], here[1].splitlines(), here[2]) == (code, out.splitlines(), err)


def parts(text: str) -> list[tuple[str, str]]:
    """The screen of ``best``: each label, and its lines in one."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        label, words = line[:11].strip(), line[12:].strip()
        found.append((label, words) if label else (found[-1][0], f"{found.pop()[1]} {words}".strip()))
    return found


@pytest.mark.parametrize("which", [(), ("--trial", "0"), ("--native-only",)], ids=" ".join)
def test_an_export_is_the_same_but_for_the_prompts(
    autotune: Run, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: tuple[str, ...]
) -> None:
    """The files, what is said of them, and the document, in folders of one name after the other."""
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    (home, url), folder, seen = served["ended"], tmp_path / "made", []
    for place in (("--home", str(home.root)), ("--url", url)):
        _, text, err = autotune("export", *which, *place, "-o", str(folder))
        code, document, _ = autotune("export", *which, *place, "-o", str(folder), "--force", "--json")
        assert (code, err) == (0, "")
        files = {
            str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mode) for p in folder.rglob("*") if p.is_file()
        }
        seen.append((files, text.splitlines(), json.loads(document)))
        folder.rename(tmp_path / place[0])
    (own, own_lines, own_document), (sent, lines, document) = seen
    prompts = "prompts/train.jsonl"
    sentence = f"missing  {prompts}: the study's prompts stay where it ran; put them there"
    assert own.pop(prompts)[0]
    assert f"put the study's own into `{prompts}`" in sent.pop("README.md")[0].decode()
    own.pop("README.md")
    assert sent == own
    assert [line for line in lines if line != sentence] == [line.replace(f", {prompts}", "") for line in own_lines]
    assert (lines.count(sentence), own_document.pop("missing"), document.pop("missing")) == (1, None, prompts)
    own_document["files"].remove(prompts)
    assert document == own_document


@pytest.mark.parametrize("mistake", MISTAKES, ids=" ".join)
def test_a_mistake_has_the_same_sentence_and_exit_code(
    autotune: Run, recorded: HomePaths, url: str, tmp_path: Path, mistake: tuple[str, ...]
) -> None:
    more = ("-o", str(tmp_path / "made")) if mistake[0] == "export" else ()
    here, there = autotune(*mistake, *more, "--home", str(recorded.root)), autotune(*mistake, *more, "--url", url)
    assert there == here
    assert (there[0], there[1], there[2].count("\n")) == (2, "", 1)
    assert not (tmp_path / "made").exists()


def test_two_places_are_refused(autotune: Run, home: HomePaths) -> None:
    for place in places(home):
        code, out, err = autotune("status", "--url", "http://127.0.0.1:1", *place)
        assert (code, out) == (2, "")
        assert err == f"autotune: --url and {place[0]} name two places; give one of them\n"


def test_a_long_study_comes_in_pages(
    autotune: Run, home: HomePaths, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    monkeypatch.setattr(studies, "TRIALS", 2)
    with serving(read_settings()) as url:
        assert autotune("trials", "--url", url) == autotune("trials")
        found = json.loads(autotune("trials", "--sort", "number", "--json", "--url", url)[1])["trials"]
    assert [trial["number"] for trial in found] == list(range(5))


def test_a_reading_is_the_same_value_on_both_sides(home: HomePaths, study: Study) -> None:
    """Every field of a study, of its trials and of what is read of a trial crosses the network as it is."""
    running(home, study)
    store = open_store(home.database)
    found = read_study(store, study)
    page = ReadingPage(replace(found, known_answer=found.answer), 100)
    assert codec.load(ReadingPage, codec.dump(page)) == page
    store.close()


def test_no_log_but_the_trials_own_is_sent(autotune: Run, home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that names another file as a trial's log is not believed by a server."""
    home.prepare()
    store = open_store(home.database)
    study = store.create_study(factories.study_spec(), factories.NOW)
    record(store, study, factories.failed(0, factories.oom(log_path="/etc/passwd")))
    store.close()
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    with serving(read_settings()) as url:
        assert json.loads(autotune("show", "0", "--json", "--url", url)[1])["trial"]["log_tail"] == []
        assert "root:" not in autotune("show", "0", "--url", url)[1]


Answer = Callable[[str], tuple[int, str]]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """The address of something else that answers, by path: (status, body)."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=partial(server.serve_forever, 0.02), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def listed(home: HomePaths, study: Study) -> str:
    """What a server answers to the list of its studies."""
    reader = Reader(read_settings())
    text = reader.ask("/api/v1/studies").text
    reader.cache.close()
    return text


def reading_of(home: HomePaths, study: Study, **changes: Any) -> str:
    """What a server sends of the study when its specification is another."""
    store = open_store(home.database)
    found = read_study(store, study)
    store.close()
    made = replace(study, spec=replace(study.spec, **changes))
    return codec.dump(ReadingPage(StudyReading(made, found.trials, known_answer=found.answer), None))


EARLIER = '{"detail": "there is nothing at /api/v1/studies/1/reading"}'


@pytest.mark.parametrize(("status", "body", "code", "words"), of("whatever_else_answers_is_one_sentence"))
@pytest.mark.parametrize("command", [("status",), ("show", "0"), ("export",)], ids=" ".join)
def test_whatever_else_answers_is_one_sentence(
    autotune: Run, listed: str, command: tuple[str, ...], status: int, body: str, code: int, words: str
) -> None:
    """The list of studies is answered as every version answers it, and what is asked next is not."""
    with answering(
        lambda path: (200, listed) if path.partition("?")[0] == "/api/v1/studies" else (status, body)
    ) as url:
        got, out, err = autotune(*command, "--url", url)
    assert (got, out, err.count("\n")) == (code, "", 1), err
    assert err.startswith("autotune: ")
    assert words in err


def test_a_server_that_does_not_answer_is_one_sentence(autotune: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}"
    silent = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr("api.client.Client.__init__.__defaults__", (None, 0.2))
    for url in (refused, f"http://127.0.0.1:{silent.getsockname()[1]}"):
        code, out, err = autotune("status", "--url", url)
        assert (code, out, err.count("\n")) == (5, "", 1)
        assert err.startswith(f"autotune: {url} does not answer (")
    silent.close()
    code, out, err = autotune("status", "--url", "nowhere")
    assert (code, out, err) == (2, "", "autotune: 'nowhere' is no address of a server; expected http://host:port\n")


def test_a_field_that_an_earlier_server_does_not_send_is_empty(home: HomePaths, study: Study) -> None:
    document = json.loads(reading_of(home, study))
    del document["reading"]["verified"], document["reading"]["limits"]
    found = codec.load(ReadingPage, json.dumps(document)).reading
    assert (found.verified, found.limits.wall_s, found.study) == (None, None, study)


def test_a_server_reads_and_writes_nothing_of_this_machine(
    autotune: Run, home: HomePaths, study: Study, listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts it names are not copied, and no name it sends is a path."""
    secret = tmp_path / "secret"
    secret.write_text("mine")
    text = reading_of(home, study, name="../../evil", workload=replace(study.spec.workload, prompts=str(secret)))
    notes = codec.dump(TrialReading((), "", (), None, None, 0.0))
    answers = {"/api/v1/studies": listed, "/api/v1/studies/1/reading": text}
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with answering(lambda path: (200, answers.get(path.partition("?")[0], notes))) as url:
        code, out, err = autotune("export", "--url", url)
    assert (code, err) == (0, "")
    (folder,) = (tmp_path / "a" / "b").iterdir()
    assert {p.name for p in tmp_path.rglob("*") if not p.is_relative_to(folder)} >= {"secret", "home"}
    assert not any(p.name.startswith("evil") for p in tmp_path.rglob("*") if not p.is_relative_to(folder))
    assert "mine" not in {p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert "missing  prompts/train.jsonl" in out
    with answering(
        lambda path: (200, listed if path.endswith("/studies") else reading_of(home, study, framework="../../evil"))
    ) as url:
        code, out, err = autotune("export", "--url", url)
    assert (code, out, err.count("\n")) == (2, "", 1), err
