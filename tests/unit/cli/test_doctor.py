import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import hardware
from autotune.cli.doctor import Verdict, check_database, check_disk, check_gpus, check_home, check_training
from autotune.errors import MachineError, StoreError
from autotune.hardware import Gpu
from autotune.settings import HomePaths, read_settings
from tests import factories
from tests.unit.cli.conftest import Run

GIB = factories.GIB


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "visible_gpus", lambda: ())


def gpu(**changes: Any) -> Any:
    base = Gpu(
        index=0,
        uuid="GPU-1",
        name="Example 80GB",
        memory=80 * GIB,
        memory_used=0,
        compute_capability=(9, 0),
        driver="590.1",
    )
    return replace(base, **changes)


def python(tmp_path: Path) -> Any:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_a_machine_that_is_ready(autotune: Run, home: HomePaths) -> None:
    code, out, err = autotune("doctor")
    assert (code, err) == (0, "")
    assert "A study can run here." in out
    assert "torch 2.13.0" in out
    assert "none visible; trials run on the CPU" in out
    assert home.root.is_dir()
    assert max(len(line) for line in out.splitlines()) <= 80


def test_as_json(autotune: Run) -> None:
    document = json.loads(autotune("doctor", "--json")[1])
    assert document["ok"] is True
    names = [finding["name"] for finding in document["findings"]]
    assert names == ["tuner", "home", "disk", "database", "machine", "GPU", "training"]
    assert all(finding["command"] is None for finding in document["findings"] if finding["verdict"] == "ok")


def test_a_problem_is_exit_five_with_the_command_that_mends_it(autotune: Run, wiring: Any) -> None:
    wiring.probe = lambda python: {"python": "3.11", "packages": {"torch": "2.13.0"}}
    code, out, _ = autotune("doctor")
    assert code == 5
    assert "lacks trl, transformers, accelerate, datasets" in " ".join(out.split())
    assert "-m pip install torch 'trl>=1.16,<1.17'" in " ".join(out.split())
    assert "No study can run here yet." in out
    assert autotune("doctor", "--json")[0] == 5


def test_an_interpreter_that_cannot_be_asked(tmp_path: Path) -> None:
    def probe(_: str) -> Any:
        raise MachineError("it ended with exit code 127")

    found = check_training(python(tmp_path), probe)
    assert found.verdict is Verdict.PROBLEM
    assert "exit code 127" in found.detail
    assert found.command.startswith(python(tmp_path))


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    def probe(_: str) -> Any:
        pytest.fail("asked a program that is not there")

    found = check_training(str(tmp_path / "missing"), probe)
    assert found.verdict is Verdict.PROBLEM
    assert "venv" in found.command


def test_a_trl_the_meter_was_not_checked_with_is_a_warning(tmp_path: Path) -> None:
    packages = {
        "torch": "2.13.0",
        "trl": "0.18.0",
        "transformers": "4.52.3",
        "accelerate": "1.4.0",
        "datasets": "3.6.0",
    }
    found = check_training(python(tmp_path), lambda _: {"packages": packages, "trl_supported": False})
    assert found.verdict is Verdict.WARNING
    assert "trl>=1.16,<1.17" in found.command


@pytest.mark.parametrize(
    ("free", "verdict"), [(100 * GIB, Verdict.OK), (5 * GIB, Verdict.WARNING), (GIB // 2, Verdict.PROBLEM)]
)
def test_disk_space(tmp_path: Path, free: int, verdict: Verdict) -> None:
    found = check_disk(tmp_path / "not" / "yet", lambda path: free if path == tmp_path else 0)
    assert found.verdict is verdict
    assert bool(found.command) == (verdict is not Verdict.OK)


def test_disk_space_that_cannot_be_told(tmp_path: Path) -> None:
    def broken(_: Path) -> int:
        raise OSError(5, "Input/output error")

    assert check_disk(tmp_path, broken).verdict is Verdict.WARNING


def test_gpus_idle_busy_and_with_an_old_driver() -> None:
    idle, busy, old = check_gpus([gpu(), gpu(index=1, memory_used=20 * GIB), gpu(index=2, driver="550.54")])
    assert idle.verdict is Verdict.OK
    assert "80.0 GiB" in idle.detail
    assert busy.verdict is Verdict.WARNING
    assert "20.0 GiB in use" in busy.detail
    assert old.verdict is Verdict.WARNING
    assert "580 or newer" in old.detail
    assert busy.command == old.command == "nvidia-smi"


def test_a_broken_database_is_moved_aside_not_deleted(home: HomePaths) -> None:
    home.prepare()
    home.database.write_text("")

    def broken() -> int:
        raise StoreError("the file is not a database")

    found = check_database(read_settings(), broken)
    assert found.verdict is Verdict.PROBLEM
    assert found.command == f"mv {home.database} {home.database}.broken"


def test_a_database_elsewhere_is_not_touched(home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DATABASE", "postgresql://user:secret@host/name")

    def broken() -> int:
        raise StoreError("cannot be reached")

    found = check_database(read_settings(), broken)
    assert found.command == "unset AUTOTUNE_DATABASE"
    assert "secret" not in found.detail + found.command


def test_a_real_broken_database_through_the_command(autotune: Run, home: HomePaths) -> None:
    home.prepare()
    home.database.write_bytes(b"no database" * 500)
    code, out, err = autotune("doctor")
    assert (code, err) == (5, "")
    assert "database" in out
    assert ".broken" in out


def test_a_home_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "file" / "home"))
    found = check_home(read_settings())
    assert found.verdict is Verdict.PROBLEM
    assert found.command.startswith("export AUTOTUNE_HOME=")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    assert check_home(read_settings()).verdict is Verdict.PROBLEM
