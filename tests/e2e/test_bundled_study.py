"""The main job on the bundled model: real GRPO trials, a real budget, a real lack of memory, a real kill."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.study.budget import GRACE_S
from tests.e2e.commands import autotune, begin, document, states, stored_cycles, tagged, trials_of, written_cycles
from tests.support.trl_trials import ROOT, training_python

pytestmark = [pytest.mark.full, pytest.mark.trl, pytest.mark.alone, pytest.mark.timeout(3600)]

STARTING_S = 240.0
"""Looking at the interpreter and writing the prompts is set-up, outside the budget."""
ENDED = ("COMPLETE", "PRUNED", "FAIL")
SMALL = ("--rows-per-update", "4", "--max-completion-length", "16")
"""Cycles of seconds, where the assertions need no longer ones."""
BASELINES = 8
"""A budget in times of what the baseline took, so that as many trials fit into it however fast the machine is.

At most 0.4 of it is kept for confirming, and a round of that is two trials, each nearly as long as the baseline.
"""


def start_arguments(*more: str) -> tuple[str, ...]:
    model = os.environ.get("AUTOTUNE_BUNDLED_MODEL") or str(ROOT / ".models" / "SmolLM2-135M-Instruct")
    return ("start", "--model", model, "--python", training_python(), "--no-live", *more)


def test_a_study_killed_in_a_trial_loses_no_cycle_and_ends_by_itself_with_an_answer_and_its_interval(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    acknowledged = kill_9_in_trial_1(start_arguments(*SMALL, "--budget", "2h"), home, tmp_path)
    baseline = trials_of(home, tmp_path)[0]
    budget = round(BASELINES * baseline["wall_seconds"])
    left = budget - spent(home, tmp_path)
    arguments = start_arguments(*SMALL, "--budget", f"{budget}s")
    done = autotune(*arguments, home=home, cwd=tmp_path, timeout=left + GRACE_S + STARTING_S)
    assert done.returncode == 0, done.stderr[-3000:]
    assert spent(home, tmp_path) <= budget + GRACE_S
    assert tagged(home) == []
    trials = trials_of(home, tmp_path)
    assert all(t["state"] in ENDED for t in trials)
    assert {"search", "confirm"} <= {t["kind"] for t in trials}
    assert trials[1]["attempt"] == 2
    assert stored_cycles(home, 1, 1) >= acknowledged
    assert spent(home, tmp_path) > sum(t["wall_seconds"] or 0 for t in trials)
    found = document("best", home=home, cwd=tmp_path)["recommendation"]
    assert found["rows"]
    for row in found["rows"]:
        assert row["tokens_per_hour_low"] <= row["tokens_per_hour"] <= row["tokens_per_hour_high"]
        if row["gain"] is not None:
            assert 0 < row["gain"]["low"] <= row["gain"]["value"] <= row["gain"]["high"]
    assert all(row["worst_case_passed"] for row in found["rows"])


def kill_9_in_trial_1(arguments: tuple[str, ...], home: Path, cwd: Path) -> int:
    """The command until trial 1 has cycles, killed; returns how many its child had written by then."""
    process = begin(*arguments, home=home, cwd=cwd)
    wait_for(lambda: written_cycles(home, 1, 1) >= 2 and stored_cycles(home, 1, 1) >= 1, process)
    acknowledged = written_cycles(home, 1, 1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert stored_cycles(home, 1, 1) >= 1
    return max(acknowledged, written_cycles(home, 1, 1))


def spent(home: Path, cwd: Path) -> float:
    """Wall seconds of the budget."""
    return float(document("status", home=home, cwd=cwd)["spent"]["wall_seconds"])


def test_a_baseline_that_runs_out_of_memory_and_nothing_after_it_asks_for_more(tmp_path: Path) -> None:
    """Micro-batch 8 without checkpointing needs over 4 GiB here; the limit is met by the watchdog or the backstop."""
    home = tmp_path / "home"
    hungry = ("--set", "gradient_checkpointing=false", "--set", "precision=fp32", "--memory-limit", "4GiB")
    process = begin(*start_arguments("--max-trials", "5", "--budget", "2h", *hungry), home=home, cwd=tmp_path)
    wait_for(lambda: one_is_measured_after_three(home), process)
    end_by_ctrl_c(process)
    trials = trials_of(home, tmp_path)
    first = trials[0]["outcome"]
    assert (first["reason"], first["pool"]) == ("OOM", "host")
    assert first["phase"] == "update"
    found = document("best", home=home, cwd=tmp_path)["recommendation"]
    assert found["baseline"].startswith("OOM in update")
    assert found["reference"] is not None
    assert all(row["configuration"] != trials[0]["configuration"] for row in found["rows"])
    assert all(row["worst_case_passed"] for row in found["rows"])
    assert_nothing_asks_for_more(trials)


def one_is_measured_after_three(home: Path) -> bool:
    """A trial that fits has begun: of those that did not, no cycle ended."""
    found = states(home)
    running = bool(found) and found[-1] == "RUNNING" and written_cycles(home, len(found) - 1, 1) >= 2
    return running and sum(state in ENDED for state in found) >= 3


def assert_nothing_asks_for_more(trials: list[Mapping[str, Any]]) -> None:
    """After an OOM in the update no searched configuration is the same with as large a micro-batch or larger."""
    batch = {"micro_batch_size", "gradient_accumulation_steps", "steps_per_generation", "num_generations"}
    for trial in trials:
        for earlier in trials[: trial["number"]]:
            if trial["kind"] != "search" or (earlier["outcome"] or {}).get("reason") != "OOM":
                continue
            here, there = trial["configuration"], earlier["configuration"]
            same = {k for k in here if here[k] == there[k]} | batch >= set(here) - {"optimizer"}
            rows, limit = here["micro_batch_size"], there["micro_batch_size"]
            # An optimizer that needs less may be tried with the same micro-batch, not with twice of it.
            enough = rows >= (limit if here.get("optimizer") == there.get("optimizer") else 2 * limit)
            assert not (same and enough), (trial, earlier)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], timeout: float = 1200.0) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "the study did not get there"
        time.sleep(0.1)


def end_by_ctrl_c(process: subprocess.Popen[str]) -> None:
    """Once: the trial that runs is finished, and what there is so far is the answer."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 128 + signal.SIGINT, said[-3000:]
