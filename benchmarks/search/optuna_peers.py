"""Optuna's Gaussian process and CMA-ES as peers, held to the rows that are left.

See docs/decisions/0007-gp-and-cmaes.md. Both need packages beside the tool's: torch and scipy, or cmaes
(requirements/search-peers.in).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.samplers.plain import STARTUP_TRIALS
from autotune.proposals.translation import (
    Observation,
    OptunaTrialStatus,
    asked,
    distributions,
    frozen_trials,
    selected,
)

GP_NEEDS, CMAES_NEEDS = ("torch", "scipy"), ("cmaes",)
KEPT_FASTEST, KEPT_NEWEST = 48, 80
"""Of a longer history only the fastest and the newest trials are told: a fit is cubic in their number."""
WEIGHED = 2048
"""Candidates looked at, drawn evenly, where more are left."""
BATCH = 256
"""Candidates evaluated at once, which bounds memory."""
PENALTY = 1.0
"""How far below the slowest feasible trial a failed one is told to CMA-ES, in log tokens/hour. CMA-ES looks at ranks
only, so any figure below all others says the same."""
ASKS = 8
Choose = Callable[[CandidateGrid, Mask, Sequence[Observation], int], int]
"""Candidates, those left, what is known, a seed -> the row chosen."""


def startup(left: Mask, evidence: Sequence[Observation], seed: int) -> int | None:
    """A row by chance while fewer than ``STARTUP_TRIALS`` trials are decided; ``None`` from then on."""
    decided, indices = sum(e.standing is not OptunaTrialStatus.PENDING for e in evidence), np.flatnonzero(left)
    return None if decided >= STARTUP_TRIALS else int(indices[seed % len(indices)])


def gp(grid: CandidateGrid, left: Mask, evidence: Sequence[Observation], seed: int) -> int:
    """The row Optuna's Gaussian process chooses: expected improvement under constraints, over the rows left alone.

    Optuna maximises the improvement over the whole grid; here it is evaluated at candidates alone, so
    that what is proposed is the best of what may be proposed, not a neighbour of something that may not.
    """
    first = startup(left, evidence, seed)
    if first is not None:
        return first
    kept = selected(evidence, KEPT_FASTEST, KEPT_NEWEST)
    indices = _weighed(left, seed)
    study = _study(_held_to(grid, indices, seed))
    study.add_trials(_logs(grid, kept))
    trial = study.ask(distributions(grid))
    index = grid.at(tuple(int(trial.params[d.name]) for d in grid.dimensions))
    # The process cannot be fitted where no two told trials differ in a knob; then chance decides.
    return index if index is not None and left[index] else int(indices[seed % len(indices)])


def _logs(grid: CandidateGrid, evidence: Sequence[Observation]) -> list[FrozenTrial]:
    """Optuna trials with log tokens/hour; failures break a constraint, and stand at the mean of what was measured."""
    found = frozen_trials(grid, evidence)
    failed = [any(c > 0 for c in t.constraints.values()) for t in found]
    middle = fmean([e.value for e in evidence if e.standing is OptunaTrialStatus.FEASIBLE] or [0.0])
    return [
        t
        if t.value is None
        else optuna.create_trial(
            value=middle if broken else math.log(t.value),
            params=t.params,
            distributions=t.distributions,
            constraints=t.constraints if any(failed) else None,
        )
        for t, broken in zip(found, failed, strict=True)
    ]


def _weighed(left: Mask, seed: int) -> NDArray[np.int64]:
    """The candidates looked at, in their order."""
    indices = np.flatnonzero(left)
    if len(indices) <= WEIGHED:
        return indices
    drawn = np.random.default_rng(seed).choice(indices, size=WEIGHED, replace=False)
    return np.sort(drawn)


def _held_to(grid: CandidateGrid, indices: NDArray[np.int64], seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler with the search for the best point replaced: its one documented opening for that."""
    points = grid.places(indices).tolist()
    names = [d.name for d in grid.dimensions]
    params = [dict(zip(names, point, strict=True)) for point in points]

    class HeldGpSampler(optuna.samplers.GPSampler):
        def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:  # noqa: ARG002
            found = acqf.search_space.get_normalized_params(params, params)
            parts = [acqf.eval_acqf_no_grad(found[i : i + BATCH]) for i in range(0, len(found), BATCH)]
            return found[int(np.argmax(np.concatenate(parts)))]

    return HeldGpSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)


def cmaes(grid: CandidateGrid, left: Mask, evidence: Sequence[Observation], seed: int) -> int:
    """The row Optuna's CMA-ES chooses, rebuilt from what is known by replaying it.

    Every decided trial is enqueued, asked for and told in order, so the distribution after n trials is the one
    an uninterrupted search would have; what is proposed may lie beside what was drawn, and CMA-ES is told the
    point that ran. Dimensions of more than two values without an order are drawn by TPE.
    """
    first = startup(left, evidence, seed)
    if first is not None:
        return first
    shapes = _shapes(grid)
    return asked(_replayed(grid, evidence, shapes, seed), grid, left, ASKS, shapes)


def _shapes(grid: CandidateGrid) -> Mapping[str, BaseDistribution]:
    """Places as numbers where they have an order, or are only two; as categories otherwise.

    With fewer than two numbers there is nothing for CMA-ES to stretch, and all are categories.
    """
    numbers = {d.name for d in grid.dimensions if d.ordered or len(d.values) == 2}
    if len(numbers) < 2:
        numbers = set()
    return {
        d.name: IntDistribution(0, len(d.values) - 1)
        if d.name in numbers
        else CategoricalDistribution(tuple(range(len(d.values))))
        for d in grid.dimensions
    }


def _replayed(
    grid: CandidateGrid, evidence: Sequence[Observation], shapes: Mapping[str, BaseDistribution], seed: int
) -> optuna.Study:
    others = optuna.samplers.TPESampler(n_startup_trials=STARTUP_TRIALS, seed=seed)
    study = _study(optuna.samplers.CmaEsSampler(independent_sampler=others, seed=seed, warn_independent_sampling=False))
    worst = min([e.value for e in evidence if e.standing is OptunaTrialStatus.FEASIBLE] or [0.0]) - PENALTY
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # A point enqueued twice is two trials of one configuration, which is meant.
        for trial in frozen_trials(grid, evidence):
            if trial.value is not None:
                failed = any(c > 0 for c in trial.constraints.values())
                study.enqueue_trial(trial.params)
                study.tell(study.ask(dict(shapes)), worst if failed else math.log(trial.value))
    return study


def _study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=sampler)
