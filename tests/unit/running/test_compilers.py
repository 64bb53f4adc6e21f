"""Which processes count as compilers: by what the kernel calls them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.running import proc
from autotune.running.proc import Stat
from autotune.running.watchdog import compiles
from tests.support.not_none import not_none

COMPILERS = ("g++", "cc1plus", "as", "ld", "ld.lld", "clang++", "clang-19", "ptxas", "cicc", "nvcc")
OTHERS = ("", "python", "python3.11", "pt_main_thread", "ray::worker", "last", "old", "VLLM::Worker")


@pytest.mark.parametrize("name", COMPILERS + OTHERS)
def test_parts_of_compilers_are_and_what_trains_is_not(name: str) -> None:
    assert compiles(Stat(7, 1, 7, "R", 100, 0, name)) is (name in COMPILERS)


def test_a_program_is_called_by_the_name_it_was_started_by(tmp_path: Path) -> None:
    program = tmp_path / "cc1plus"
    program.symlink_to(Path(sys.executable).resolve())
    code = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([program, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert not_none(process.stdout).read(1) == b"."
        stat = not_none(proc.read_stat(process.pid))
        assert (stat.name, compiles(stat)) == ("cc1plus", True)
        process.communicate()
    itself = not_none(proc.read_stat(os.getpid()))
    assert not compiles(itself)
