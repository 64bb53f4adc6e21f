"""Whole studies whose search trials share processes; everything but the framework is real."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from autotune.domain import FailureReason, TrialKind, TrialState
from tests.e2e.studies import UNDISTURBED, Tuner, fastest, undisturbed
from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.full


def workers(tuner: Tuner, number: int) -> list[tuple[str, int]]:
    """(worker, its n-th trial) of a trial's last attempt; empty for a process of its own."""
    store = tuner.store()
    try:
        notes = [note.data for note in store.notes(1, number) if note.name == "worker"]
        return [(str(data["worker"]), int(data["number"])) for data in notes]
    finally:
        store.close()


def test_search_trials_share_processes_and_nothing_else_does(tmp_path: Path) -> None:
    tuner = Tuner(tmp_path / "home", max_trials=7, warm=True)
    tuner.finish()
    assert tuner.tagged() == []
    assert list((tmp_path / "home").rglob("workers")) == []
    _, trials = tuner.study()
    by_worker: dict[str, list[int]] = {}
    for trial in trials:
        ran = workers(tuner, trial.number)
        assert len(ran) == (1 if trial.kind in (TrialKind.BASELINE, TrialKind.SEARCH) else 0)
        for worker, number in ran:
            by_worker.setdefault(worker, []).append(number)
    assert sum(len(numbers) for numbers in by_worker.values()) == 7
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_worker.values())
    assert any(t.kind is TrialKind.CONFIRM and t.state is TrialState.COMPLETE for t in trials)


def test_the_same_trials_are_measured_the_same_warm_and_cold(tmp_path: Path) -> None:
    warm, cold = Tuner(tmp_path / "warm", max_trials=UNDISTURBED, warm=True), undisturbed()
    warm.finish()
    figures = [
        [(t.number, t.kind, t.state, t.configuration.key, [c.seconds for c in t.cycles]) for t in tuner.study()[1]]
        for tuner in (warm, cold)
    ]
    assert figures[0] == figures[1]


@pytest.mark.parametrize("reason", ["OOM", "CRASH"])
def test_a_failure_of_a_used_process_is_no_knowledge_until_a_fresh_one_met_it(tmp_path: Path, reason: str) -> None:
    """Each trial but the baseline fails once, if its process is a used one; none of that is in the history."""
    failure = {"reason": reason, "pool": "host", "message": "warm only"}
    act = {"do": "used", "at": 1, "result": failure}
    tuner = Tuner(tmp_path / "home", max_trials=5, warm=True, baseline=fastest(), script={"acts": [act]})
    tuner.finish()
    _, trials = tuner.study()
    assert [t for t in trials if t.state is TrialState.FAIL] == []
    again = [t for t in trials if t.attempt == 2]
    assert again
    assert all(t.kind is TrialKind.SEARCH and workers(tuner, t.number) == [] for t in again)
    store = tuner.store()
    said = [e.message for e in store.events(1) if e.kind == "trial_repeated"]
    store.close()
    assert len(said) == len(again)
    assert all("in a process that had run another trial before" in words for words in said)


def test_one_that_fails_in_a_fresh_process_too_is_known(tmp_path: Path) -> None:
    failure = {"reason": "OOM", "pool": "host", "message": "always"}
    act = {"do": "result", "at": 1, "when": {"gradient_checkpointing": False}, "result": failure}
    baseline = fastest(gradient_checkpointing=True)
    tuner = Tuner(tmp_path / "home", max_trials=6, warm=True, baseline=baseline, script={"acts": [act]})
    tuner.finish()
    failed = [t for t in tuner.study()[1] if t.state is TrialState.FAIL]
    assert failed
    for trial in failed:
        assert trial.outcome.reason is FailureReason.OOM
        ran = workers(tuner, trial.number)
        assert ran == [] or ran[0][1] == 1


def test_a_killed_tuners_worker_ends_with_its_trial(tmp_path: Path) -> None:
    # When nobody is left to say that it is enough, it must not wait for that after every cycle.
    tuner = Tuner.held(tmp_path / "home", 4, trial=2, cycle=1, warm=True, baseline=fastest(), answer_s=0.2)
    process = tuner.start()
    tuner.wait_for(lambda trials: len(trials) == 3 and len(trials[2].cycles) >= 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    tuner.let_go()
    wait_for(lambda: not tuner.tagged(), "the end of its worker")
    tuner.finish()
    assert all(t.state.is_finished for t in tuner.study()[1])
    assert tuner.tagged() == []


def test_ctrl_c_ends_the_idle_worker_too(tmp_path: Path) -> None:
    tuner = Tuner(tmp_path / "home", max_trials=50, warm=True, script={"sleep": 0.05})
    process = tuner.start()
    tuner.wait_for(lambda trials: len(trials) >= 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert tuner.tagged() == []
