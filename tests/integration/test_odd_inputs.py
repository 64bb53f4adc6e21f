"""Hostile and odd inputs to every command and route (``tests/corpus.py``), and that what is unclean is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpus import wrong_in
from tests.support import hostile

ROOT = Path(__file__).parents[2]


def tried(count: int, seed: int) -> None:
    words = ("--count", str(count), "--seed", str(seed), "--processes", "2")
    done = subprocess.run(
        [sys.executable, "-m", "tests.corpus", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    *_, last = done.stdout.splitlines()
    assert last.endswith(" 0 unclean")


@pytest.mark.timeout(900)
def test_kept_inputs_and_some_more_are_clean() -> None:
    tried(60, seed=7)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_two_thousand_inputs_are_clean() -> None:
    tried(2000, seed=1)


@pytest.mark.parametrize(
    ("code", "out", "err"),
    [
        (1, "", "autotune: x"),
        (2, "", ""),
        (2, "", "autotune: a\nautotune: b"),
        (0, "", "Traceback (most recent call last):"),
        (5, "", "autotune: unexpected OSError: x"),
        (0, "\x1b[31m", ""),
        (2, "", "autotune: " + "x" * 3000),
    ],
)
def test_what_is_unclean_is_noticed(code: int, out: str, err: str) -> None:
    assert list(wrong_in(code, out, err))


def test_every_command_and_its_options_are_met() -> None:
    found = hostile.commands()
    assert {("start",), ("space", "check"), ("export",)} <= found.keys()
    assert set(hostile.LEFT_OUT) == set(hostile.BAD) <= {words[0] for words in found}
    assert all(any(p.name == "home" for p in found[(name,)].params) for name in ("status", "report"))
