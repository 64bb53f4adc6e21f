"""What a container lacks is said with the option that gives it; where all is there nothing is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from autotune.cli.doctor import container_checks
from autotune.cli.doctor.container_checks import Surroundings, check_container, look
from autotune.cli.doctor.findings import Verdict

WHOLE = Surroundings(8 << 30, "/home/me", True, True, "/tmp", 1 << 20, -1)


def test_where_all_is_there_nothing_is_said() -> None:
    assert check_container(WHOLE, 8) == []
    assert check_container(replace(WHOLE, files=-1), 8) == []


@pytest.mark.parametrize(
    ("lacks", "gpus", "verdict", "detail", "command"),
    [
        ({"shared": 64 << 20}, 0, Verdict.WARNING, "64.0 MiB of shared memory", "--ipc=host"),
        ({"shared": None}, 1, Verdict.WARNING, "no /dev/shm", "--shm-size"),
        ({"home": None, "home_can_be_written": False}, 0, Verdict.WARNING, "HOME is not set", "export HOME="),
        ({"home": "/", "home_can_be_written": False}, 0, Verdict.WARNING, "HOME=/ cannot be written", "export HOME="),
        ({"named": False}, 0, Verdict.WARNING, f"user id {os.getuid()} has no name", "export USER="),
        ({"temporary": None}, 0, Verdict.PROBLEM, "no folder for temporary files", "--tmpfs /tmp"),
        ({"files": 1024}, 0, Verdict.WARNING, "1024 files may be open", "ulimit -n"),
        ({"locked": 64 << 10}, 2, Verdict.WARNING, "64.0 KiB of memory may be locked", "memlock=-1"),
    ],
)
def test_what_is_lacking_is_said_with_what_mends_it(
    lacks: dict[str, Any], gpus: int, verdict: Verdict, detail: str, command: str
) -> None:
    (found,) = check_container(replace(WHOLE, **lacks), gpus)
    assert found.verdict is verdict
    assert found.detail.startswith(detail)
    assert command in found.command


def test_one_gpu_needs_no_locked_memory() -> None:
    assert check_container(replace(WHOLE, locked=0), 1) == []


def test_a_name_in_the_environment_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.setattr(container_checks.pwd, "getpwuid", nobody)
    assert not look({}).named
    assert look({"USER": "me"}).named


def test_a_home_that_is_no_folder_cannot_be_written(tmp_path: Any) -> None:
    assert look({"HOME": str(tmp_path)}).home_can_be_written
    assert not look({"HOME": str(tmp_path / "absent")}).home_can_be_written
    assert not look({}).home_can_be_written


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_real_user_without_a_name_and_home() -> None:
    """As ``docker run --user 12345``."""
    code = (
        "from autotune.cli.doctor.container_checks import check_container, look;"
        "print([f.name for f in check_container(look(), 0)])"
    )
    done = subprocess.run(
        ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd()},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "'HOME'" in done.stdout
    assert "'user'" in done.stdout
