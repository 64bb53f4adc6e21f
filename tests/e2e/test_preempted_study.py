"""A scheduler takes the machine away at random moments: the tuner leaves in time, and the same command goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from autotune.cli import exit_codes
from autotune.cli.stopping import GRACE_S
from autotune.domain import StudyStatus, TrialState
from tests.e2e.forked import Forked
from tests.e2e.studies import UNDISTURBED, Tuner, undisturbed
from tests.support.properties import is_full
from tests.support.waiting import PATIENCE_S

MOMENTS = 30 if is_full() else 6
SEED = 36
SLOW = 0.15
"""Seconds of a cycle, so that most moments meet a trial."""
INTERPRETER_S = 5.0
"""On top of the grace, for Python to end on a busy machine: what the grace bounds has ended before."""


def _is_over(tuner: Tuner) -> bool:
    return tuner.study()[0].status is StudyStatus.DONE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_notice_at_any_moment_loses_nothing_and_leaves_no_process(tmp_path: Path) -> None:
    """Every other time the trial is told before the tuner is, as a scheduler does that signals all processes."""
    rng = random.Random(SEED)
    notices, longest_s = 0, 0.0
    homes = iter(range(MOMENTS))
    tuner = Tuner(tmp_path / f"home-{next(homes)}", max_trials=UNDISTURBED, script={"sleep": SLOW})
    while notices < MOMENTS:
        process = tuner.start()
        tuner.wait_for(lambda _: True)
        time.sleep(rng.uniform(0.0, 3.0))
        number = rng.choice([signal.SIGTERM, signal.SIGUSR1])
        if notices % 2:
            for pid in tuner.tagged():
                _send(pid, signal.SIGTERM)
        noticed = time.monotonic()
        _send(process.pid, number)
        code = _ended(process)
        took_s = time.monotonic() - noticed
        if code == 0 and _is_over(tuner):
            tuner = Tuner(tmp_path / f"home-{next(homes)}", max_trials=UNDISTURBED, script={"sleep": SLOW})
            continue
        notices += 1
        longest_s = max(longest_s, took_s)
        assert took_s <= GRACE_S + INTERPRETER_S
        assert code in (exit_codes.RUN_AGAIN, -number), "before the tuner listens the signal ends it as any program"
        assert tuner.tagged() == []
        states = [t.state for t in tuner.study()[1]]
        assert TrialState.RUNNING not in states
        assert TrialState.FAIL not in states
    print(f"{MOMENTS} notices; the longest took {longest_s:.1f} s to the exit, of {GRACE_S:.0f} s of grace")
    tuner.finish()
    whole = [(t.number, t.kind, t.configuration.key) for t in undisturbed().study()[1]]
    assert [(t.number, t.kind, t.configuration.key) for t in tuner.study()[1]] == whole


def test_a_trial_that_does_not_listen_is_ended_within_the_grace(tmp_path: Path) -> None:
    """It ignores SIGTERM, and so do the processes it made in sessions of their own."""
    acts = [{"do": "spawn", "at": "start", "how": "double_fork", "count": 2}]
    tuner = Tuner.held(tmp_path / "home", 4, trial=0, cycle=1, acts=acts)
    tuner.plan["grace_s"] = 8.0
    process = tuner.start()
    tuner.wait_for(lambda trials: bool(trials) and len(trials[0].cycles) >= 1)
    noticed = time.monotonic()
    process.send_signal(signal.SIGUSR1)
    assert _ended(process) == exit_codes.RUN_AGAIN
    assert time.monotonic() - noticed <= 8.0 + INTERPRETER_S
    assert tuner.tagged() == []
    assert tuner.study()[1][0].state is TrialState.WAITING


def test_a_tuner_that_hangs_is_gone_within_the_grace_and_takes_its_processes_along(tmp_path: Path) -> None:
    """Stopped as by a disk that does not answer: its watching thread sleeps, and the bound holds all the same."""
    tuner = Tuner.held(tmp_path / "home", 4, trial=0, cycle=1)
    tuner.plan.update(grace_s=5.0, hang=True)
    process = tuner.start()
    tuner.wait_for(lambda trials: bool(trials) and len(trials[0].cycles) >= 1)
    noticed = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert _ended(process) == exit_codes.RUN_AGAIN
    assert time.monotonic() - noticed <= 5.0 + INTERPRETER_S
    assert tuner.tagged() == []
    tuner.plan.update(hang=False)
    tuner.let_go()
    tuner.finish()
    assert tuner.study()[1][0].attempt == 2


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _ended(process: Forked) -> int:
    process.communicate(timeout=PATIENCE_S)
    return process.returncode
