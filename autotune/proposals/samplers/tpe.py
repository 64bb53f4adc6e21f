"""Tree-structured Parzen estimator: more of what was fast, less of what was slow or failed."""

from __future__ import annotations

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
    """Decided trials before the model is asked; until then each is as unlike the others as can be, or is
    around ``start``. Uniform draws would often leave a knob at one value through a whole short study."""

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
            points = [p for e in evidence if (p := lattice.point(e.configuration)) is not None]
            return lattice.farthest(points, left, seed)
        indices = np.flatnonzero(left)
        return lattice.nearest(lattice.moved(int(indices[seed % len(indices)]), start), left)

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
