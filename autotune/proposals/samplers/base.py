"""A sampler of the product: an Optuna sampler for one proposal, and what the proposer has to know about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna

from autotune.domain import Configuration, Trial
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.forecasts import Background, Task
from autotune.proposals.translation import Observation, distributions


@dataclass(frozen=True)
class Turn:
    """One proposal: the candidates it is chosen from."""

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

    def bind(self, task: Task | None, background: Background | None = None) -> StudySampler:  # noqa: ARG002
        """The same for one study: its task, and what is known of it beforehand."""
        return self

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> StudySampler:  # noqa: ARG002
        """The same at one point of a study: its trials, and what they teach."""
        return self

    def at(self, here: Sequence[Trial]) -> StudySampler:  # noqa: ARG002
        """The same for one of several places, whose finished trials are ``here``."""
        return self

    def told(
        self,
        own: Sequence[Observation],
        known: Sequence[Observation],  # noqa: ARG002
        *,
        elsewhere: bool,  # noqa: ARG002
    ) -> Sequence[Observation]:
        """What the Optuna study holds, by trial number.

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
