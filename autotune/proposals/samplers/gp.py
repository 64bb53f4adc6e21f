"""Gaussian process: a surface through what was measured, and the candidate most likely to lie above its best.

Optuna's own needs torch and scipy, which the tool does without; they are imported by Optuna, and only when asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.samplers.opening import opening
from autotune.proposals.translation import Evidence, Standing, distributions, rebuilt_study
from search_spaces.configuration import KnobValue

TOLD_FASTEST = 48
TOLD_NEWEST = 80
"""Of a longer history only the fastest and the newest trials are told: the fit is cubic in their number."""

WEIGHED = 2048
"""Candidates looked at, drawn evenly, where more are left."""

NEIGHBOURS = 256
"""Besides them, those nearest to the fastest trial: where one differs in few knobs, a draw seldom has it."""

BATCH = 256
"""Candidates evaluated at once, which bounds memory."""


class GpSampler:
    """Optuna's Gaussian process with expected improvement under constraints, over the candidates that are left.

    Optuna maximises the improvement over the whole grid; here it is evaluated at candidates alone, so
    that what is proposed is the best of what may be proposed, not a neighbour of something that may not.
    """

    name = "gp"
    needs: tuple[str, ...] = ("torch", "scipy")
    learns = True

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
        told = selected(evidence)
        indices = _weighed(lattice, left, told, seed)
        sampler = _held_to(lattice, indices, seed)
        constrained = any(e.standing is Standing.INFEASIBLE for e in told)
        study = rebuilt_study(lattice, told, sampler, infeasible=fmean, constrained=constrained)
        asked = study.ask(distributions(lattice))
        index = lattice.at(tuple(int(asked.params[d.name]) for d in lattice.dimensions))
        # The process cannot be fitted where no two told trials differ in a knob; then chance decides.
        return index if index is not None and left[index] else int(indices[seed % len(indices)])


def selected(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """What is told of a long history: the fastest, the newest, and whatever is not decided, by trial number."""
    decided = [e for e in evidence if e.standing is not Standing.PENDING]
    if len(decided) <= TOLD_FASTEST + TOLD_NEWEST:
        return tuple(evidence)
    fastest = sorted((e for e in decided if e.standing is Standing.FEASIBLE), key=lambda e: (-e.value, e.number))
    kept = {e.number for e in (*fastest[:TOLD_FASTEST], *decided[-TOLD_NEWEST:])}
    return tuple(e for e in evidence if e.number in kept or e.standing is Standing.PENDING)


def _weighed(lattice: Lattice, left: Mask, evidence: Sequence[Evidence], seed: int) -> NDArray[np.int64]:
    """The candidates looked at, in their order."""
    indices = np.flatnonzero(left)
    if len(indices) <= WEIGHED:
        return indices
    drawn = np.random.default_rng(seed).choice(indices, size=WEIGHED, replace=False)
    best = max((e for e in evidence if e.standing is Standing.FEASIBLE), key=lambda e: e.value, default=None)
    point = None if best is None else lattice.point(best.configuration)
    near = drawn[:0] if point is None else lattice.around(point, left, NEIGHBOURS)
    return np.unique(np.concatenate([drawn, near]))


def _held_to(lattice: Lattice, indices: NDArray[np.int64], seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's sampler with the search for the best point replaced: its one documented opening for that."""
    points = lattice.points(indices)
    names = [d.name for d in lattice.dimensions]
    params = [dict(zip(names, point, strict=True)) for point in points]

    class HeldGpSampler(optuna.samplers.GPSampler):
        def _optimize_acqf(self, acqf: Any, best_params: Any) -> Any:  # noqa: ARG002
            found = acqf.search_space.get_normalized_params(params, params)
            parts = [acqf.eval_acqf_no_grad(found[i : i + BATCH]) for i in range(0, len(found), BATCH)]
            return found[int(np.argmax(np.concatenate(parts)))]

    return HeldGpSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)
