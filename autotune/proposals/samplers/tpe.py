"""Tree-structured Parzen estimator: more of what was fast, less of what was slow or failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import optuna

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.samplers.asking import asked
from autotune.proposals.samplers.opening import STARTUP_TRIALS, opening
from autotune.proposals.translation import Evidence, distributions, rebuilt_study
from search_spaces.configuration import KnobValue


class TpeSampler:
    """Optuna's multivariate TPE with constraints, held to the candidates that are left.

    The estimator draws from the whole grid, of which most points may be illegal: a draw that is no
    candidate is told as FAIL, which TPE ignores, and another is asked for. When none of ``ASKS`` draws
    hits, the first is moved to the nearest candidate left.
    """

    name = "tpe"
    needs: tuple[str, ...] = ()
    learns = True

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
        first = opening(lattice, left, evidence, seed, start)
        if first is not None:
            return first
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS, n_ei_candidates=self.DRAWS, multivariate=True, seed=seed
        )
        study = rebuilt_study(lattice, evidence, sampler)
        return asked(study, distributions(lattice), lattice, left, self.ASKS)
