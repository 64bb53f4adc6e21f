"""What a tuner reads again and again: the same as the database says, and each finished trial once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Outcome, Trial, TrialState
from autotune.ports import Store
from autotune.store import open_store
from autotune.study.recorder import History
from tests.support import factories as f
from tests.support.properties import examples

NUMBERS = itertools.count()
ACTS = ("add", "start", "finish", "requeue", "read")


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    """For one study after the other."""
    store = open_store(":memory:")
    yield store
    store.close()


@examples(often=30, full=100)
@given(acts=st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 4)), max_size=30))
def test_it_is_what_the_database_says_whatever_happens_between(shared: Store, acts: Sequence[tuple[str, int]]) -> None:
    store = shared
    study = store.create_study(f.study_spec(f"study {next(NUMBERS)}"), f.NOW)
    history = History(store, study.id)
    for act, place in acts:
        there = store.trials(study.id)
        waiting = [t for t in there if t.state is TrialState.WAITING]
        running = [t for t in there if t.state is TrialState.RUNNING]
        if act == "add":
            store.add_trial(study.id, f.draft(), f.NOW)
        elif act == "start" and waiting:
            store.start_attempt(study.id, waiting[place % len(waiting)].number, f.NOW)
        elif act == "finish" and running:
            number = running[place % len(running)].number
            store.finish_trial(study.id, number, TrialState.COMPLETE, Outcome(), f.NOW, 1.0, None)
        elif act == "requeue" and running:
            store.requeue(study.id, running[place % len(running)].number, 1.0)
        else:
            assert history.trials() == store.trials(study.id)
    assert history.trials() == store.trials(study.id)


def test_a_finished_trial_stays_the_same_object_and_an_open_one_is_read_again() -> None:
    store = open_store(":memory:")
    study = store.create_study(f.study_spec(), f.NOW)
    history = History(store, study.id)
    for number in range(3):
        store.add_trial(study.id, f.draft(), f.NOW)
        store.start_attempt(study.id, number, f.NOW)
    for number in (0, 2):  # the one between is open, so what comes after it is read again
        store.finish_trial(study.id, number, TrialState.COMPLETE, Outcome(), f.NOW, 1.0, None)
    before: tuple[Trial, ...] = history.trials()
    assert [t.state for t in before] == [TrialState.COMPLETE, TrialState.RUNNING, TrialState.COMPLETE]
    store.finish_trial(study.id, 1, TrialState.FAIL, Outcome(), f.NOW, 1.0, None)
    after = history.trials()
    assert after[0] is before[0]
    assert after[1].state is TrialState.FAIL
    assert all(again is known for again, known in zip(history.trials(), after, strict=True))
