"""The main job on the bundled model: real GRPO trials, a real budget, a real lack of memory, a real kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.budget import GRACE_S
from tests.e2e.commands import autotune, begin, document, stored_cycles, tagged, trials_of, written_cycles
from tests.trl_trials import ROOT, training_python

pytestmark = [pytest.mark.slow, pytest.mark.trl, pytest.mark.timeout(1500)]

STARTING_S = 120.0
"""Looking at the interpreter and writing the prompts is set-up, outside the budget."""


def start_arguments(*more: str) -> tuple[str, ...]:
    model = os.environ.get("AUTOTUNE_BUNDLED_MODEL") or str(ROOT / ".models" / "SmolLM2-135M-Instruct")
    return ("start", "--model", model, "--python", training_python(), "--no-live", *more)


def test_a_study_ends_by_itself_with_an_answer_and_its_interval(tmp_path: Path) -> None:
    home = tmp_path / "home"
    began = time.monotonic()
    done = autotune(*start_arguments("--budget", "8m"), home=home, cwd=tmp_path, timeout=900)
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-3000:]
    assert took <= 480 + GRACE_S + STARTING_S
    trials = trials_of(home, tmp_path)
    assert len(trials) >= 6
    assert all(t["state"] in ("COMPLETE", "PRUNED", "FAIL") for t in trials)
    found = document("best", home=home, cwd=tmp_path)["recommendation"]
    assert found["rows"]
    for row in found["rows"]:
        assert row["tokens_per_hour_low"] <= row["tokens_per_hour"] <= row["tokens_per_hour_high"]
        if row["gain"] is not None:
            assert 0 < row["gain"]["low"] <= row["gain"]["value"] <= row["gain"]["high"]
    assert all(row["worst_case_passed"] for row in found["rows"])
    assert tagged(home) == []


def test_a_baseline_that_runs_out_of_memory_and_nothing_after_it_asks_for_more(tmp_path: Path) -> None:
    """Micro-batch 8 without checkpointing needs over 4 GiB here; the limit is met by the watchdog or the backstop."""
    home = tmp_path / "home"
    hungry = ("--set", "gradient_checkpointing=false", "--set", "precision=fp32", "--memory-limit", "4GiB")
    done = autotune(
        *start_arguments("--max-trials", "5", "--budget", "6m", *hungry), home=home, cwd=tmp_path, timeout=2400
    )
    assert done.returncode == 0, done.stderr[-3000:]
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


def test_kill_9_of_a_real_study_loses_no_cycle_and_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "home"
    arguments = start_arguments("--max-trials", "3", "--budget", "6m")
    process = begin(*arguments, home=home, cwd=tmp_path)
    acknowledged = wait_for_cycles(home, trial=1, cycles=2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert stored_cycles(home, 1, 1) >= 1
    acknowledged = max(acknowledged, written_cycles(home, 1, 1))
    again = autotune(*arguments, home=home, cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    assert tagged(home) == []
    assert stored_cycles(home, 1, 1) >= acknowledged
    trials = trials_of(home, tmp_path)
    assert trials[1]["attempt"] == 2
    assert all(t["state"] in ("COMPLETE", "PRUNED", "FAIL") for t in trials)
    status = document("status", home=home, cwd=tmp_path)
    assert status["spent"]["wall_seconds"] > sum(t["wall_seconds"] or 0 for t in trials[:1])


def wait_for_cycles(home: Path, trial: int, cycles: int, timeout: float = 900.0) -> int:
    """Until the child has written that many cycles; returns how many there were."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        for path in home.glob(f"runs/*/{trial}/1/metrics.jsonl"):
            written = sum(b'"kind":"cycle"' in line for line in path.read_bytes().splitlines())
            if written >= cycles:
                time.sleep(0.5)
                return written
        time.sleep(0.1)
    raise AssertionError("the trial did not get there")
