"""Whole studies through the installed command, on real TRL trials of a tiny random model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.wording.numbers import rate
from tests.e2e.commands import autotune, document, tagged, trials_of
from tests.support.trl_trials import training_python

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.full, pytest.mark.trl, pytest.mark.timeout(900)]

HOSTILE = "raise SystemExit('a file of the working directory was imported')\n"

WIDTH = 80


@pytest.fixture(scope="module")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A study that ended by itself, run from a folder full of hostile modules: home, working directory, end screen."""
    folder = tmp_path_factory.mktemp("study")
    cwd = folder / "hostile"
    cwd.mkdir()
    for name in ("trainer", "api", "search_spaces", "autotune", "contract", "torch_plugin"):
        (cwd / f"{name}.py").write_text(HOSTILE)
    home = folder / "home"
    done = autotune(*start_arguments(tiny), "--max-trials", "3", "--no-live", home=home, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return home, cwd, done.stdout


@pytest.fixture(scope="module")
def recorded(finished: tuple[Path, Path, str]) -> list[Mapping[str, Any]]:
    """Its trials with their cycles, as ``show`` prints them."""
    home, cwd, _ = finished
    return trials_of(home, cwd)


def start_arguments(tiny: Path) -> tuple[str, ...]:
    sizes = ("--rows-per-update", "8", "--max-prompt-length", "260", "--max-completion-length", "16")
    return ("start", "--model", str(tiny / "model"), "--python", training_python(), *sizes)


def test_the_study_ends_with_an_answer_that_all_screens_share(finished: tuple[Path, Path, str]) -> None:
    home, cwd, screen = finished
    best = document("best", home=home, cwd=cwd)
    rows = best["recommendation"]["rows"]
    assert rows
    assert rows[0]["worst_case_passed"]
    assert all(len(line) <= WIDTH for line in screen.splitlines())
    shown = autotune("best", "--why", home=home, cwd=cwd).stdout
    for text in (" ".join(shown.split()), " ".join(screen.split())):
        for row in rows if text == " ".join(shown.split()) else rows[:1]:
            assert rate(row["tokens_per_hour"]) in text
            assert f"trials {', '.join(f'#{n}' for n in row['trials'])}" in text
            for change in row["changes"]:
                assert as_on_screen(change) in text


def as_on_screen(change: str) -> str:
    """``name: true -> false`` of the document as the screens write it."""
    name, _, values = change.partition(": ")
    before, _, after = values.partition(" -> ")
    switches = {"true": "on", "false": "off"}
    return f"{name} {switches.get(before, before)} → {switches.get(after, after)}"


def test_every_trial_is_recorded_with_its_phases_and_peaks(recorded: list[Mapping[str, Any]]) -> None:
    assert {t["kind"] for t in recorded} >= {"baseline", "search"}
    for trial in recorded:
        if trial["state"] != "COMPLETE":
            continue
        assert trial["tokens_per_hour"] > 0
        for cycle in trial["cycles"]:
            spent = cycle["phase_seconds"]
            assert sum(spent.values()) == pytest.approx(cycle["seconds"], rel=1e-6)
            assert {"generate", "reward", "update"} <= set(spent)


def test_every_speed_cycle_replays_the_same_lengths(recorded: list[Mapping[str, Any]]) -> None:
    multisets = set()
    for trial in recorded:
        multisets |= {tuple(sorted(c["lengths_tokens"])) for c in trial["cycles"] if c["kind"] == "recorded"}
    assert len(multisets) == 1


def test_the_same_command_continues_and_another_specification_is_refused(
    finished: tuple[Path, Path, str], tiny: Path
) -> None:
    home, cwd, _ = finished
    again = autotune(*start_arguments(tiny), "--max-trials", "3", "--no-live", home=home, cwd=cwd)
    assert again.returncode == 0
    assert "continued" in again.stderr
    done = autotune(*start_arguments(tiny), "--max-trials", "3", "--json", home=home, cwd=cwd)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[-1]["type"] == "end"
    assert records[-1]["recommendation"]["rows"] == document("best", home=home, cwd=cwd)["recommendation"]["rows"]
    other = autotune(*start_arguments(tiny), "--max-trials", "3", "--seed", "5", home=home, cwd=cwd)
    assert other.returncode == 2
    assert "seed: 0 -> 5" in other.stderr
    assert "Traceback" not in other.stderr


def test_no_process_is_left(finished: tuple[Path, Path, str]) -> None:
    home, _, _ = finished
    assert tagged(home) == []


def test_a_reward_package_that_is_missing_is_named_before_trial_0(tiny: Path, tmp_path: Path) -> None:
    done = autotune(
        "start", "--model", str(tiny / "model"), "--python", training_python(), "--task", "no_such_task",
        "--max-trials", "2", home=tmp_path / "home", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode in (2, 5)
    assert "no_such_task" in done.stderr
    assert "Traceback" not in done.stderr
