"""Environments are made once, finished when half made, and made anew when what they are made from changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import bundled_model, environments
from tools.environments import SetupError, elapsed, run

CPU = environments.Kind("training stack", "train-cpu.txt")


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """Every pip call of the making; none is really made."""
    calls: list[tuple[str, ...]] = []
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "train-cpu.txt").write_text("# header\nnumpy==2.4.6\ntorch==2.13.0  # via x\n")
    (tmp_path / "requirements" / "dev.txt").write_text("rich==15.0.0\n")
    (tmp_path / "requirements" / "search-peers.txt").write_text("torch==2.13.0\n")
    for name in ("ms-swift", "verl"):
        (tmp_path / "requirements" / f"{name}.txt").write_text("accelerate==1.15.0\ntorch==2.13.0\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "REQUIREMENTS", tmp_path / "requirements")
    monkeypatch.setattr(environments, "_pip", lambda python, *arguments: calls.append(arguments))
    monkeypatch.setattr(environments, "_install_solver", lambda python: None)
    return calls


def fake_venv(environment: Path) -> None:
    environments.python_of(environment).parent.mkdir(parents=True)
    environments.python_of(environment).symlink_to(sys.executable)


def test_torch_first_and_the_rest_without_dependencies(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    environment = tmp_path / "env"
    fake_venv(environment)
    lock = str(tmp_path / "requirements" / "train-cpu.txt")
    environments.make(environment, CPU)
    assert pip == [("--constraint", lock, "torch==2.13.0"), ("--no-deps", "-r", lock)]


def test_named_index_gives_torch_only(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    fake_venv(tmp_path / "env")
    environments.make(tmp_path / "env", CPU, "an-index")
    assert pip[0] == ("--no-deps", "--index-url", "an-index", "torch==2.13.0")
    assert "--index-url" not in pip[1]


def test_made_once_and_again_when_the_lock_changes(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    fake_venv(tmp_path / "env")
    for _ in range(3):
        environments.make(tmp_path / "env", CPU)
    assert len(pip) == 2
    (tmp_path / "requirements" / "train-cpu.txt").write_text("torch==2.13.1\n")
    environments.make(tmp_path / "env", CPU)
    assert len(pip) == 4


def test_a_framework_has_an_environment_of_its_own_lock(
    tmp_path: Path, pip: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_venv(tmp_path / "env")
    ran: list[list[str]] = []
    monkeypatch.setattr(environments, "run", lambda command, problem, environment: ran.append(command))
    lock = tmp_path / "requirements" / "open-r1.txt"
    lock.write_text("torch==2.13.0\ntrl==0.18.0\n")
    for _ in range(2):
        environments.make(tmp_path / "env", environments.Kind("open-r1", "open-r1.txt", "trl, math_verify"))
    assert pip == [("--constraint", str(lock), "torch==2.13.0"), ("--no-deps", "-r", str(lock))]
    assert ["import trl, math_verify" in command[-1] for command in ran] == [True]


NOISY = """
import logging, os, sys, warnings
warnings.warn("a function moves")
logging.getLogger("torchao").warning("Failed to load /env/_C_mxfp8.so: libcudart.so.13")
if os.environ.get("VLLM_LOGGING_LEVEL") != "ERROR":
    print("INFO no CUDA here", file=sys.stderr)
"""


def test_what_the_stack_warns_of_is_not_shown_and_what_fails_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The person who waits can do nothing about the one, and everything about the other."""
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "broken.py").write_text("import noisy, no_such_module_at_all\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("PYTHONWARNINGS", "VLLM_LOGGING_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    environments._import(Path(sys.executable), "noisy; print('2.13.0')", "it cannot be imported")
    assert capfd.readouterr() == ("2.13.0\n", "")
    with pytest.raises(SetupError, match="it cannot be imported"):
        environments._import(Path(sys.executable), "broken", "it cannot be imported")
    assert "No module named 'no_such_module_at_all'" in capfd.readouterr().err
    monkeypatch.setenv("PYTHONWARNINGS", "default")
    environments._import(Path(sys.executable), "noisy", "it cannot be imported")
    assert "a function moves" in capfd.readouterr().err, "who asks to see it sees it"


def test_interrupted_making_is_finished_next_time(
    tmp_path: Path, pip: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_venv(tmp_path / "env")

    def fail(*_: object) -> None:
        raise SetupError("the training stack was installed but cannot be imported")

    with monkeypatch.context() as patch:
        patch.setattr(environments, "_import", fail)
        with pytest.raises(SetupError):
            environments.make(tmp_path / "env", environments.TRAINING[environments.Stack.CPU])
    environments.make(tmp_path / "env", CPU)
    assert len(pip) == 4


def test_tool_is_installed_with_hashes_and_follows_its_own_files(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    fake_venv(tmp_path / "env")
    environments.make(tmp_path / "env", environments.TOOL)
    environments.make(tmp_path / "env", environments.TOOL)
    assert "--require-hashes" in pip[0]
    assert "--editable" in pip[1]
    assert len(pip) == 2
    (tmp_path / "pyproject.toml").write_text("[project]\nname='x'\n")
    environments.make(tmp_path / "env", environments.TOOL)
    assert len(pip) == 4


def test_peers_have_an_environment_of_their_own_with_the_tool_in_it(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    fake_venv(tmp_path / "env")
    lock = str(tmp_path / "requirements" / "search-peers.txt")
    for _ in range(2):
        environments.make(tmp_path / "env", environments.OTHERS["peers"], "an-index")
    assert pip[0] == ("--no-deps", "--index-url", "an-index", "torch==2.13.0")
    assert pip[1] == ("--no-deps", "-r", lock)
    assert "--editable" in pip[2]
    assert len(pip) == 3


def test_a_framework_that_cannot_be_imported_is_told_by_its_name(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    fake_venv(tmp_path / "env")
    with pytest.raises(SetupError, match="ms-swift was installed but cannot be imported"):
        environments.make(tmp_path / "env", environments.Kind("ms-swift", "ms-swift.txt", "no_such_module"))
    assert len(pip) == 2


def test_a_python_the_framework_has_no_release_for_costs_no_download(
    tmp_path: Path, pip: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match=r"^verl takes Python below 3\.11, not 3\.\d+; name one with BOOTSTRAP="):
        environments.make(tmp_path / "env", environments.Kind("verl", "verl.txt", below=(3, 11)))
    assert pip == []
    assert not (tmp_path / "env").exists()


def test_moved_environment_is_not_current(tmp_path: Path) -> None:
    fake_venv(tmp_path / "a")
    lock = tmp_path / "lock"
    lock.write_text("x")
    (tmp_path / "a" / environments.STAMP).write_text(environments.digest_of(tmp_path / "a", (lock,)))
    assert environments.is_current(tmp_path / "a", environments.digest_of(tmp_path / "a", (lock,)))
    (tmp_path / "a").rename(tmp_path / "b")
    assert not environments.is_current(tmp_path / "b", environments.digest_of(tmp_path / "b", (lock,)))


def test_broken_environment_is_made_anew(tmp_path: Path, pip: list[tuple[str, ...]]) -> None:
    python = environments.python_of(tmp_path / "env")
    python.parent.mkdir(parents=True)
    python.symlink_to("/no/such/python")
    (tmp_path / "env" / "leftover").write_text("")
    environments.make(tmp_path / "env", CPU)
    assert subprocess.run([str(python), "-c", "import pip"], check=False).returncode == 0
    assert not (tmp_path / "env" / "leftover").exists()


@pytest.mark.parametrize("lock", ["", "torchaudio==2.11.0\n", "# torch==2.13.0\n"])
def test_lock_that_does_not_pin_torch_is_refused(tmp_path: Path, lock: str) -> None:
    (tmp_path / "lock.txt").write_text(lock)
    with pytest.raises(SetupError, match="does not pin torch"):
        environments.pin_of(tmp_path / "lock.txt", "torch")


def test_solver_that_cannot_be_compiled_is_replaced_by_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here pip cannot find it at all, which is the same to the one who set up."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    python = environments.python_of(tmp_path / "env")
    environments._install_solver(python)
    code = "import pycosat\ntry: pycosat.itersolve([])\nexcept ImportError as error: print(error)"
    answer = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    assert "needs a C compiler" in answer.stdout


def test_commands_that_fail_or_are_missing_are_sentences() -> None:
    with pytest.raises(SetupError, match=r"it did not work \(exit code 3"):
        run([sys.executable, "-c", "raise SystemExit(3)"], "it did not work")
    with pytest.raises(SetupError, match="it did not work: "):
        run(["/no/such/command"], "it did not work")


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s")])
def test_elapsed(monkeypatch: pytest.MonkeyPatch, seconds: float, text: str) -> None:
    monkeypatch.setattr("tools.environments.time.monotonic", lambda: 100 + seconds)
    assert elapsed(100) == text


def test_complete_model_folder_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled_model, "fetch", lambda *_: pytest.fail("fetched again"))
    for name in bundled_model.REQUIRED_FILES:
        (tmp_path / name).write_text("kept")
    bundled_model.provide(Path("/no/such/python"), tmp_path)
    assert (tmp_path / "config.json").read_text() == "kept"
