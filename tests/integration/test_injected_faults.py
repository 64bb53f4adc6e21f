"""Writes of a study's life that fail once (``tests/injector.py``); and the injector notices what it is to notice."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests import injector
from tests.injector import Ran, wrong_after
from tests.support.served import settings_in, whole_study

ROOT = Path(__file__).parents[2]


def injected(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.injector", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    assert last.endswith("0 with something that did not hold")
    assert not last.startswith("0 of")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_some_writes_fail_once_and_nothing_is_lost() -> None:
    injected("--kinds", "--every", "16", "--seed", "3")


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_a_write_of_each_kind_fails_once_and_nothing_is_lost() -> None:
    injected("--kinds")


def test_what_does_not_hold_is_noticed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    whole_study(settings)
    home = settings.home.root
    named = f"autotune: no space is left: {home}/x"
    assert wrong_after(home, Ran(5, named, [["trial", 0], ["cycle", 0, 1, 0]])) == []
    assert wrong_after(home, Ran(5, named, [["trial", 99]])) == ["acknowledged and not stored: ['trial', 99]"]
    assert wrong_after(home, Ran(1, named, [])) == ["the exit code is 1"]
    assert wrong_after(home, Ran(5, "autotune: no space is left", []))[0].startswith("no file is named")
    settings.home.crashes.mkdir()
    (settings.home.crashes / "x.txt").touch()
    (home / ".config.jsonabc").touch()
    assert len(wrong_after(home, Ran(0, "Traceback", []))) == 3


def test_one_of_each_is_one_of_each() -> None:
    writes = [f"tuner open runs/1/{n}/config.json 1" for n in range(9)] + ["tuner fsync runs/1/0/config.json 1"]
    assert len(injector.one_of_each(writes, random.Random(1))) == 2
