"""`verify --steps` as a user meets it; trials run on simulated time."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from autotune.domain import FailureReason, Outcome, Study, TrialKind, TrialState
from autotune.settings import HomePaths
from autotune.store import open_store
from autotune.verify import long_run
from tests.support import factories
from tests.support.recorded import record
from tests.unit.cli.conftest import Run, Runs

LEADER = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
FAST_S = 15.4
"""What the simulated machine takes for a cycle of it."""


@pytest.fixture
def confirmed(home: HomePaths) -> Study:
    """A study with a leader that was confirmed in two rounds; 95 s used."""
    home.prepare()
    store = open_store(home.database)
    made = store.create_study(factories.study_spec(), factories.NOW)
    store.set_lengths(made.id, factories.LENGTHS)
    record(store, made, factories.finished(0, cycle_seconds=20.0))
    record(store, made, factories.finished(1, cycle_seconds=FAST_S, configuration=LEADER))
    for pair in range(2):
        base = factories.finished(2 + 2 * pair, kind=TrialKind.CONFIRM, pair=pair, cycle_seconds=20.0)
        record(store, made, base.with_(configuration=made.spec.baseline))
        lead = factories.finished(3 + 2 * pair, kind=TrialKind.CONFIRM, pair=pair, cycle_seconds=FAST_S)
        record(store, made, lead.with_(configuration=LEADER))
    store.spend(store.open_session(made.id, factories.NOW), 95.0, 0.0, factories.NOW)
    store.close()
    return made


def all_trials(home: HomePaths) -> Any:
    store = open_store(home.database)
    try:
        return store.trials(1), store.spent(1), [e for e in store.events(1) if e.kind == "verified"]
    finally:
        store.close()


def test_a_long_run_is_ten_times_the_cycles_of_the_figure_and_is_no_ones_budget(
    autotune: Run, home: HomePaths, confirmed: Study, runs: Runs
) -> None:
    before = autotune("best", "--json")[1]
    code, out, err = autotune("verify", "--steps", "10x", "--json")
    document = json.loads(out)
    assert code == (0 if document["within_5_percent"] else 3), err
    trials, spent, events = all_trials(home)
    made = trials[-1]
    assert (made.kind, made.source, made.configuration) == (TrialKind.VERIFY, long_run.SOURCE, LEADER)
    assert (made.protocol.natural, made.protocol.recorded) == (60, 0), "two rounds of three cycles are behind it"
    assert len(long_run.natural(made)) == document["cycles"] == 60
    assert spent[0] == 95.0
    assert [e.data for e in events] == [document]
    row, after = json.loads(before)["recommendation"]["rows"][0], autotune("best", "--json")[1]
    assert json.loads(after)["recommendation"]["rows"][0] == row, "a verification changes no figure"
    assert document["stated_tokens_per_hour"] == row["tokens_per_hour"]
    assert "60 cycles (60 updates)" in err
    assert "cycle 60 of 60" in err
    assert "verified over 60 updates" in " ".join(autotune("best")[1].split())
    host = next(one for one in document["memory"] if one["pool"] == "host")
    assert host["first_third_peak_bytes"] == host["last_third_peak_bytes"] == factories.peaks().host
    assert (host["rises"], host["updates_left"]) == (False, None), "its peaks are all alike"
    assert "no rise beyond chance" in autotune("report")[1]


def test_a_run_that_is_too_slow_ends_with_3_and_the_phase(
    autotune: Run, home: HomePaths, confirmed: Study, runs: Runs
) -> None:
    code, out, _ = autotune("verify", "--trial", "0", "--steps", "5")
    trials, _, _ = all_trials(home)
    assert len(long_run.natural(trials[-1])) == 5
    measured = sum(c.seconds for c in long_run.natural(trials[-1])) / 5
    assert code == (0 if abs(20.0 / measured - 1.0) <= 0.05 else 3)
    assert ("reason" in out) == (code == 3)
    assert "generate" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--steps", "ten"), "--steps takes a number of steps (200) or a multiple"),
        (("--steps", "10x", "--trial", "99"), "no trial 99"),
    ],
)
def test_what_cannot_be_run_is_one_sentence_and_runs_nothing(
    autotune: Run, home: HomePaths, confirmed: Study, runs: Runs, arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = autotune("verify", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert len(all_trials(home)[0]) == 6


def test_a_long_run_that_fails_says_how(autotune: Run, home: HomePaths, confirmed: Study, runs: Runs) -> None:
    runs.outcome = Outcome(FailureReason.OOM, message="the process tree passed its limit")
    code, out, err = autotune("verify", "--steps", "10x")
    assert (code, out) == (5, "")
    assert "the long run, did not end well: OOM: the process tree passed its limit" in err


def test_ctrl_c_ends_a_long_run_for_good(autotune: Run, home: HomePaths, confirmed: Study, runs: Runs) -> None:
    runs.on_cycle = lambda _, index: os.kill(os.getpid(), signal.SIGINT) if index == 20 else None
    before = signal.getsignal(signal.SIGINT)
    code, out, err = autotune("verify", "--steps", "10x")
    assert (code, out) == (130, "")
    assert "nothing is left running" in err
    trials, _, events = all_trials(home)
    assert trials[-1].state is TrialState.FAIL, "nothing waits that the next `start` would run for an hour"
    assert trials[-1].outcome.reason is FailureReason.CANCELLED
    assert events == []
    assert signal.getsignal(signal.SIGINT) is before
