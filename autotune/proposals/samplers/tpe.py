"""Tree-structured Parzen estimator: more of what was fast, less of what was slow or failed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import optuna

from autotune.proposals.lattice import Lattice, Mask, Point
from autotune.proposals.translation import Evidence, Standing, distributions, rebuilt_study
from search_spaces.configuration import KnobValue


class TpeSampler:
    """Optuna's multivariate TPE with constraints, held to the candidates that are left.

    The estimator draws from the whole grid, of which most points may be illegal: a draw that is no
    candidate is told as FAIL, which TPE ignores, and another is asked for. When none of ``ASKS`` draws
    hits, the first is moved to the nearest candidate left.
    """

    name = "tpe"

    STARTUP_TRIALS = 6
    """Decided trials before the model is asked; until then draws are spread out, or around ``start``."""

    SPREAD = 3
    """Uniform draws of which the one least like what was tried is taken: one alone often leaves a knob at one
    value through a short study; many would go to the corners, which run out of memory first."""

    DRAWS = 100
    """Points the estimator weighs for one suggestion; more than Optuna's 24, because a trial costs minutes."""

    ASKS = 8

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,
        start: Mapping[str, KnobValue] | None,
    ) -> int:
        decided = sum(e.standing is not Standing.PENDING for e in evidence)
        if decided >= self.STARTUP_TRIALS:
            return self._asked(lattice, left, evidence, seed)
        if start is None:
            return self._spread(lattice, left, evidence, seed)
        indices = np.flatnonzero(left)
        return lattice.nearest(lattice.moved(int(indices[seed % len(indices)]), start), left)

    def _spread(self, lattice: Lattice, left: Mask, evidence: Sequence[Evidence], seed: int) -> int:
        points = [p for e in evidence if (p := lattice.point(e.configuration)) is not None]
        indices = np.flatnonzero(left)
        drawn = np.zeros_like(left)
        for turn in range(self.SPREAD):
            digest = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
            drawn[indices[int.from_bytes(digest[:8], "big") % len(indices)]] = True
        return lattice.farthest(points, drawn, seed)

    def _asked(self, lattice: Lattice, left: Mask, evidence: Sequence[Evidence], seed: int) -> int:
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=self.STARTUP_TRIALS, n_ei_candidates=self.DRAWS, multivariate=True, seed=seed
        )
        study = rebuilt_study(lattice, evidence, sampler)
        shapes = distributions(lattice)
        draws: list[Point] = []
        for _ in range(self.ASKS):
            asked = study.ask(shapes)
            draws.append(tuple(int(asked.params[d.name]) for d in lattice.dimensions))
            index = lattice.at(draws[-1])
            if index is not None and left[index]:
                return index
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return lattice.nearest(draws[0], left)
