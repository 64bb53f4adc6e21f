"""What a sampler is told of the trials of a study."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from autotune.domain import Budget, Configuration, Trial
from autotune.ports import Proposer
from autotune.proposals.proposer import make_proposer
from tests.support.simulated import SimulatedRunner, study_loop
from tests.unit.study.test_study import SPACE, House


class Recorded:
    """What a proposer was told."""

    def __init__(self, inner: Proposer) -> None:
        self._inner = inner
        self.ruled_out, self.count_ruled_out = inner.ruled_out, inner.count_ruled_out
        self.histories: list[Sequence[Trial]] = []

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        self.histories.append(history)
        return self._inner.propose(history, number)


def _searched(house: House, proposer: Proposer) -> list[tuple[Configuration, str]]:
    runner = SimulatedRunner(house.clock, noise=0.02)
    loop = study_loop(house.store, 1, house.clock, Budget(max_trials=9), proposer=proposer, runner=runner)
    return [(t.configuration, t.source) for t in loop.run().trials]


def _proposer(house: House) -> Proposer:
    return make_proposer(SPACE, house.spec.baseline, house.spec.resources, "grey", house.spec.seed)


def test_a_sampler_is_told_of_a_finished_trial_by_one_object() -> None:
    house = House()
    recorded = Recorded(_proposer(house))
    _searched(house, recorded)
    assert len(recorded.histories) > 3
    for before, after in itertools.pairwise(recorded.histories):
        finished = [t for t in before if t.state.is_finished]
        assert len(finished) > 0
        assert all(known is later for known, later in zip(finished, after, strict=False))
