"""What `autotune export` writes can be had from a server too, and a server cannot write where it likes."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from api.client import Client
from api.guard.security import Access
from api.schemas.exports import Export
from autotune.cli.app import build_app
from autotune.cli.commands import remote_export
from autotune.cli.failures import exit_code_of
from autotune.domain import Study
from autotune.errors import MachineError
from autotune.settings import Settings
from tests.support import factories
from tests.support.served import Reader, Served, settings_in, whole_study

TOKEN = "correct-horse-battery-staple"
PATH = "/api/v1/studies/1/export"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A study that has ended, whose prompts are there."""
    folder = tmp_path_factory.mktemp("tuned")
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"prompt": "1 + 1", "entry": "{}"}\n')
    settings = settings_in(folder)
    whole_study(settings, workload=factories.workload(prompts=str(prompts)))
    return settings


@pytest.fixture
def url(tuned: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    reader = Reader(tuned, Access(token=TOKEN))
    served = Served(reader)
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    yield served.url
    served.close()
    reader.library.close()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def running(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = exit_code_of(lambda: build_app()(list(arguments), prog_name="autotune"))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return running


def files_in(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("which", [(), ("--row", "1"), ("--trial", "0"), ("--native-only",)], ids=" ".join)
def test_a_server_sends_what_the_machine_itself_writes(
    url: str, tuned: Settings, tmp_path: Path, run: Any, which: tuple[str, ...]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    home = str(tuned.home.root)
    assert run("export", *which, "--home", home, "-o", str(here))[0] == 0
    code, out, err = run("export", *which, "--url", url, "-o", str(there))
    assert code == 0, err
    own = files_in(here)
    assert own.pop("prompts/train.jsonl"), "which is the user's, and is not sent"
    assert {name: text.replace(str(there), str(here)) for name, text in files_in(there).items()} == own
    assert stat.S_IMODE((there / "run.sh").stat().st_mode) == 0o755
    assert "train    " in out
    assert "missing  prompts/train.jsonl" in out
    assert str(there) in out


def test_as_json_it_says_the_same_as_the_command_does_locally(
    url: str, tuned: Settings, tmp_path: Path, run: Any
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    local = json.loads(run("export", "--json", "--home", str(tuned.home.root), "-o", str(here))[1])
    remote = json.loads(run("export", "--json", "--url", url, "-o", str(there))[1])
    assert remote.pop("missing") == "prompts/train.jsonl"
    local["files"].remove("prompts/train.jsonl")
    assert set(remote) == set(local)
    remote["files"].sort()
    local["files"].sort()
    for name in ("study", "row", "seams", "launcher", "native_only", "diff", "files"):
        assert remote[name] == local[name], name
    assert remote["command"]["argv"] == [word.replace(str(here), str(there)) for word in local["command"]["argv"]]
    assert remote["shell"] == local["shell"].replace(str(here), str(there))


def test_what_is_there_is_not_written_over_unless_it_is_asked_for(url: str, tmp_path: Path, run: Any) -> None:
    assert run("export", "--url", url, "-o", str(tmp_path))[0] == 0
    (tmp_path / "grpo.yaml").write_text("mine")
    code, out, err = run("export", "--url", url, "-o", str(tmp_path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--force" in err
    assert (tmp_path / "grpo.yaml").read_text() == "mine"
    assert run("export", "--url", url, "-o", str(tmp_path), "--force")[0] == 0
    assert (tmp_path / "grpo.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trial", "99999"), "no trial 99999"),
        (("nothing",), "no study 'nothing'"),
        (("--trial", "0", "--native-only"), "give one of them"),
    ],
)
def test_a_refusal_is_one_sentence(url: str, tmp_path: Path, run: Any, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run("export", *arguments, "--url", url, "-o", str(tmp_path / "made"))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert words in err
    assert not (tmp_path / "made").exists()


def test_over_http_it_is_typed_and_conditional(finished: Reader) -> None:
    answer = finished.ask(PATH)
    found = Export.model_validate(answer.json())
    assert {file.name for file in found.files} >= {"grpo.yaml", "run.sh", "README.md"}
    assert [file.name for file in found.files if file.executable] == ["run.sh"]
    assert finished.ask(PATH, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert finished.ask(f"{PATH}?trial=0&native_only=true").status_code == 422
    assert finished.ask(f"{PATH}?row=3").status_code == 422
    assert finished.ask(f"{PATH}?trial=99999").status_code == 409
    assert finished.ask("/api/v1/studies/9/export").status_code == 404
    assert finished.crashes == []


def test_what_failed_is_not_exported(reader: Reader, study: Study) -> None:
    for number, words in ((2, "failed"), (3, "has not ended")):
        answer = reader.ask(f"{PATH}?trial={number}")
        assert (answer.status_code, words in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "a/b", "", ".", "..", "x\nrm", "..\\evil", "x\x1b[31m", "n" * 300]
)
def test_a_server_cannot_write_elsewhere(url: str, tmp_path: Path, name: str) -> None:
    real = Client(url, TOKEN).export(1)
    evil = real.model_copy(update={"files": [*real.files, real.files[0].model_copy(update={"name": name})]})
    client = SimpleNamespace(find=lambda _: 1, export=lambda *_, **__: evil)
    with pytest.raises(MachineError, match="no name of a file") as caught:
        remote_export.export(client, output=tmp_path / "made")
    assert "\x1b" not in str(caught.value)
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "evil").exists()
