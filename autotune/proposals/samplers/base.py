"""A sampler of the product: an Optuna sampler for one proposal, and what the proposer has to know about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna

from autotune.domain import Configuration, Trial
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.translation import Observation, distributions


@dataclass(frozen=True)
class Turn:
    """The input of one proposal: the candidates it is chosen from."""

    grid: CandidateGrid
    left: Mask
    """Those that may be proposed; at least one."""
    seed: int
    """32 bits, uniform: of the study's seed and the trial's number."""


class StudySampler:
    """Makes the ``optuna.samplers.BaseSampler`` that a proposal is asked of.

    It keeps nothing that an answer depends on: the same history gives the same proposal. What most samplers have in
    common is here; a subclass gives ``name`` and ``sampler``.
    """

    name: str
    """As after ``--sampler``; the first part of ``Trial.source``."""
    needs_local_search: bool = False
    """The proposer enqueues moves and start-up points first, and asks the sampler when there are none left."""
    forecasts: bool = False
    """It has models, which can know something before the first trial."""
    asks: int = 1
    """Draws before the candidate nearest to the first draw is taken; 1 for a sampler that draws candidates only."""

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        """A new sampler, seeded by ``turn``."""
        raise NotImplementedError

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> StudySampler:  # noqa: ARG002
        """A copy for one study, with its task and prior knowledge."""
        return self

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> StudySampler:  # noqa: ARG002
        """A copy fitted to the study's trials so far, and to the observations made of them."""
        return self

    def at(self, here: Sequence[Trial]) -> StudySampler:  # noqa: ARG002
        """A copy for one of several places; ``here`` are the trials that finished there."""
        return self

    def observations(
        self,
        own: Sequence[Observation],
        known: Sequence[Observation],  # noqa: ARG002
        *,
        elsewhere: bool,  # noqa: ARG002
    ) -> Sequence[Observation]:
        """The observations that go into the Optuna study, by trial number.

        Args:
            elsewhere: the track is the permitted one.
        """
        return own

    def may_fit(self, configuration: Configuration) -> bool:  # noqa: ARG002
        """Whether memory is likely to suffice, as far as the sampler knows."""
        return True

    def likely(self, turn: Turn, own: Sequence[Observation]) -> Mask:  # noqa: ARG002
        """The candidates start-up points are drawn from."""
        return turn.left


class CandidateSampler(optuna.samplers.BaseSampler):
    """An Optuna sampler that chooses one of the candidates left.

    Args:
        index: the place of the choice among the grid's candidates.
    """

    def __init__(self, turn: Turn, index: Callable[[Turn], int]) -> None:
        self._turn, self._index = turn, index

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
    ) -> dict[str, optuna.distributions.BaseDistribution]:
        return distributions(self._turn.grid)

    def sample_relative(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        search_space: dict[str, optuna.distributions.BaseDistribution],  # noqa: ARG002
    ) -> dict[str, object]:
        grid = self._turn.grid
        return dict(grid.params(grid.candidates[self._index(self._turn)]))

    def sample_independent(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,  # noqa: ARG002
    ) -> object:
        raise ValueError(f"{param_name} is no dimension of the candidates")
