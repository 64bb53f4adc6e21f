"""The loop has the next proposal prepared while a trial runs, and finds the same with and without."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from autotune.domain import Budget, Configuration, Trial, TrialState
from autotune.ports import Proposer
from autotune.proposals import make_proposer
from autotune.proposals.ahead import ProposesAhead
from autotune.study.loop import StudyLoop
from tests.support.fakes import FakeStop
from tests.support.simulated import SimulatedRunner
from tests.unit.study.test_study import SPACE, House


class Recorded(ProposesAhead):
    """What was asked for, and in which order."""

    def __init__(self, inner: Proposer) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, int]] = []
        self.running: list[bool] = []
        self.told: list[Sequence[Trial]] = []

    def prepare(self, history: Sequence[Trial], number: int) -> None:
        self.calls.append(("prepare", number))
        self.running.append([t.state for t in history].count(TrialState.RUNNING) == 1 and history[-1].number < number)
        super().prepare(history, number)

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        self.calls.append(("propose", number))
        self.told.append(history)
        return super().propose(history, number)


class Plain:
    """A proposer that cannot prepare."""

    def __init__(self, inner: Proposer) -> None:
        self.propose, self.ruled_out = inner.propose, inner.ruled_out
        self.count_ruled_out = inner.count_ruled_out


def _searched(house: House, proposer: Proposer) -> list[tuple[Configuration, str]]:
    loop = StudyLoop(
        study=house.store.study(house.study.id),
        budget=Budget(max_trials=9),
        store=house.store,
        proposer=proposer,
        runner=SimulatedRunner(house.clock, noise=0.02),
        clock=house.clock,
        observer=house.observer,
        stop=FakeStop(),
        directory_of=lambda t: Path("runs") / str(t.number) / str(t.attempt),
    )
    return [(t.configuration, t.source) for t in loop.run().trials]


def _proposer(house: House) -> Proposer:
    return make_proposer(SPACE, house.spec.baseline, house.spec.resources, "grey", house.spec.seed)


def test_every_trial_that_runs_prepares_the_next_and_changes_nothing() -> None:
    one, other = House(), House()
    recorded = Recorded(_proposer(one))
    assert _searched(one, recorded) == _searched(other, Plain(_proposer(other)))
    assert recorded.calls[0] == ("prepare", 1)
    proposed = [number for kind, number in recorded.calls if kind == "propose"]
    assert len(proposed) > 3
    for number in proposed:
        assert recorded.calls.index(("prepare", number)) < recorded.calls.index(("propose", number))
    assert all(recorded.running)


def test_a_sampler_is_told_of_a_finished_trial_by_one_object() -> None:
    house = House()
    recorded = Recorded(_proposer(house))
    _searched(house, recorded)
    assert len(recorded.told) > 3
    for before, after in itertools.pairwise(recorded.told):
        finished = [t for t in before if t.state.is_finished]
        assert len(finished) > 0
        assert all(known is told for known, told in zip(finished, after, strict=False))
