"""Whole studies on scripted trials, killed, stopped and resumed; everything but the framework is real."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from autotune.domain import TrialState
from tests.e2e.commands import stored_cycles, written_cycles
from tests.e2e.forked import Forked
from tests.e2e.studies import UNDISTURBED, Tuner, fastest, undisturbed
from tests.support.waiting import PATIENCE_S


def _sequence(tuner: Tuner) -> list[tuple[int, str, str]]:
    return [(t.number, str(t.kind), t.configuration.key) for t in tuner.study()[1]]


def test_kill_9_in_mid_trial_loses_nothing_and_changes_nothing(tmp_path: Path) -> None:
    whole = undisturbed()
    killed = Tuner.held(tmp_path / "killed", UNDISTURBED, trial=3, cycle=2)
    process = killed.start()
    killed.wait_for(lambda trials: len(trials) == 4 and len(trials[3].cycles) >= 2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    in_database = len(killed.study()[1][3].cycles)
    written = written_cycles(killed.home, 3, 1)
    assert written >= in_database
    assert killed.study()[1][3].state is TrialState.RUNNING
    assert in_database >= 2
    store = killed.store()
    spent_before = store.spent(1)[0]
    store.close()
    assert spent_before > 0
    killed.let_go()

    result = killed.finish()

    assert killed.tagged() == []
    assert _sequence(killed) == _sequence(whole)
    study, trials = killed.study()
    assert all(t.state.is_finished for t in trials)
    assert trials[3].attempt == 2
    assert stored_cycles(killed.home, 3, 1) >= written
    store = killed.store()
    assert store.spent(study.id)[0] > spent_before
    assert store.recommendation(study.id) is not None
    store.close()
    assert result["trials"] == len(trials)


def test_processes_a_killed_tuner_left_in_their_own_sessions_are_ended(tmp_path: Path) -> None:
    acts = [{"do": "spawn", "at": "start", "how": "double_fork", "count": 2}]
    tuner = Tuner.held(tmp_path / "home", 2, trial=0, cycle=1, baseline=fastest(), acts=acts)
    process = tuner.start()
    tuner.wait_for(lambda trials: bool(trials) and len(trials[0].cycles) >= 1)
    assert len(tuner.tagged()) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert tuner.tagged()
    tuner.let_go()
    tuner.finish()
    assert tuner.tagged() == []


def interrupt(process: Forked) -> None:
    """Ctrl-C, heard: a second one that comes before would be the same one."""
    process.send_signal(signal.SIGINT)
    assert "Ctrl-C again stops at once" in process.stdout.readline()


def test_ctrl_c_once_finishes_the_trial_and_recommends(tmp_path: Path) -> None:
    tuner = Tuner.held(tmp_path / "home", 20, trial=1, cycle=1)
    process = tuner.start()
    tuner.wait_for(lambda trials: len(trials) == 2 and len(trials[1].cycles) >= 1)
    interrupt(process)
    tuner.let_go()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["ended_by"] == "stopped by the user"
    _, trials = tuner.study()
    assert len(trials) == 2
    assert trials[0].state is TrialState.COMPLETE
    assert trials[1].state in (TrialState.COMPLETE, TrialState.PRUNED)


def test_ctrl_c_twice_stops_now_and_the_trial_goes_on_later(tmp_path: Path) -> None:
    tuner = Tuner.held(tmp_path / "home", 3, trial=1, cycle=1, baseline=fastest())
    process = tuner.start()
    tuner.wait_for(lambda trials: len(trials) == 2 and len(trials[1].cycles) >= 1)
    interrupt(process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert tuner.tagged() == []
    assert tuner.study()[1][1].state is TrialState.WAITING
    tuner.let_go()
    tuner.finish()
    assert all(t.state.is_finished for t in tuner.study()[1])


def test_two_tuners_cannot_run_one_study(tmp_path: Path) -> None:
    first, second = (Tuner.held(tmp_path / "home", 20, trial=0, cycle=1) for _ in range(2))
    process = first.start()
    first.wait_for(bool)
    other = second.start()
    _, err = other.communicate(timeout=PATIENCE_S)
    assert other.returncode != 0
    assert "StudyBusyError" in err
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert first.tagged() == []
