"""CMA-ES: a normal distribution that moves and stretches towards what was fast.

It knows neither constraints nor values without an order: docs/decisions/0007-gp-and-cmaes.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.samplers.asking import asked
from autotune.proposals.samplers.opening import STARTUP_TRIALS, opening
from autotune.proposals.translation import Evidence, frozen_trials, new_study
from search_spaces.configuration import KnobValue

PENALTY = 1.0
"""How far below the slowest feasible trial a failed one is told, in log tokens/hour: a factor of 2.7. CMA-ES
looks at ranks only, so any figure below all others says the same."""


class CmaesSampler:
    """Optuna's CMA-ES, rebuilt from what is known by replaying it, and held to the candidates that are left.

    Every decided trial is enqueued, asked for and told in order, so the distribution after n trials is the one
    an uninterrupted search would have; what is proposed may lie beside what was drawn, and CMA-ES is told the
    point that ran. Dimensions of more than two values without an order are drawn by TPE.
    """

    name = "cmaes"
    needs: tuple[str, ...] = ("cmaes",)
    learns = True

    ASKS = 8

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        first = opening(lattice, left, evidence, seed, start)
        if first is not None:
            return first
        shapes = _shapes(lattice)
        study = _replayed(lattice, evidence, shapes, seed)
        return asked(study, shapes, lattice, left, self.ASKS)


def _shapes(lattice: Lattice) -> dict[str, BaseDistribution]:
    """Places as numbers where they have an order, or are only two; as categories otherwise.

    With fewer than two numbers there is nothing for CMA-ES to stretch, and all are categories.
    """
    numbers = {d.name for d in lattice.dimensions if d.ordered or len(d.values) == 2}
    if len(numbers) < 2:
        numbers = set()
    return {
        d.name: IntDistribution(0, len(d.values) - 1)
        if d.name in numbers
        else CategoricalDistribution(tuple(range(len(d.values))))
        for d in lattice.dimensions
    }


def _below_all(feasible: Sequence[float]) -> float:
    return min(feasible) - PENALTY


def _replayed(
    lattice: Lattice, evidence: Sequence[Evidence], shapes: dict[str, BaseDistribution], seed: int
) -> optuna.Study:
    others = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed)
    sampler = optuna.samplers.CmaEsSampler(independent_sampler=others, seed=seed, warn_independent_sampling=False)
    study = new_study(sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A point enqueued twice is two trials of one configuration, which is meant.
        for told in frozen_trials(lattice, evidence, infeasible=_below_all, constrained=False):
            if told.value is not None:
                study.enqueue_trial(told.params)
                study.tell(study.ask(shapes), told.value)
    return study
