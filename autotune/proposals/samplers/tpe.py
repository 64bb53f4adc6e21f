"""The samplers that know no model of ours: Optuna's TPE, and random and grid search to compare with."""

from __future__ import annotations

import optuna

from autotune.proposals.openings import STARTUP_TRIALS
from autotune.proposals.samplers.base import FirstSampler, StudySampler, Turn, UniformSampler


class TpeSampler(StudySampler):
    """Optuna's multivariate TPE with constraints.

    The estimator draws from the whole grid, of which most points may be illegal: a draw that is no
    candidate is told as FAIL, which TPE ignores, and another is asked for.
    """

    name = "tpe"
    needs_local_search = True
    asks = 8

    DRAWS = 100
    """Points the estimator weighs for one suggestion; more than Optuna's 24, because a trial costs minutes."""

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS,
            n_ei_candidates=self.DRAWS,
            multivariate=True,
            constant_liar=True,  # what runs beside counts as slow, so that it is not proposed again
            seed=turn.seed,
        )


class RandomSampler(StudySampler):
    """Draws without looking at what is known; the floor every other sampler is compared with."""

    name = "random"

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        return UniformSampler(turn)


class GridSampler(StudySampler):
    """Takes the candidates in their order; learns nothing."""

    name = "grid"

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        return FirstSampler(turn)
