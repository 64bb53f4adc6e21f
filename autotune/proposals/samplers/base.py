"""A sampler of the product: an Optuna sampler for one proposal, with the properties that the proposer needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna

from autotune.domain import Configuration, Trial
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.translation import Observation, distributions


@dataclass(frozen=True)
class Field:
    """Candidates, and a mask of the proposable ones."""

    grid: CandidateGrid
    left: Mask


@dataclass(frozen=True, eq=False)
class Turn:
    """The input of one proposal."""

    field: Field
    """The track's candidates; at least one is left."""
    nearby: tuple[Field, ...]
    """Further candidates, if not all are listed: those that the living process can run, and neighbours of the base."""
    around: Callable[[Configuration], Field] | None
    """Tells the neighbours of a candidate, where not all are listed."""
    track: Sequence[Observation]
    """Observations whose values count on the track, by trial number."""
    waits: Callable[[], bool]
    """Tells whether the leader is to be confirmed before a trial that promises little."""
    process: Configuration | None
    """Configuration of the living process; ``None``: a trial needs a new process."""
    seed: int
    """32 bits, uniform: of the study's seed and the trial's number."""


@dataclass(frozen=True)
class Asking:
    """The Optuna sampler that makes a proposal."""

    sampler: optuna.samplers.BaseSampler
    source: str
    """The first part of ``Trial.source``."""
    field: Field
    """Candidates it may choose from."""
    asks: int = 1
    """Draws before the candidate nearest to the first draw is taken; 1 for a sampler that draws candidates only."""


class StudySampler:
    """Creates the ``optuna.samplers.BaseSampler`` of a proposal; the same history gives the same proposal."""

    name: str
    """Name for ``--sampler``."""
    asks: int = 1

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        """Returns a new sampler, seeded by ``turn``."""
        raise NotImplementedError

    def asking(self, turn: Turn) -> Asking | None:
        """Returns the sampler to ask; ``None`` if no candidate is worth a trial now."""
        return Asking(self.sampler(turn), self.name, turn.field, self.asks)

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> StudySampler:  # noqa: ARG002
        """Returns a copy for one study, with its task and prior knowledge."""
        return self

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> StudySampler:  # noqa: ARG002
        """Returns a copy fitted to the study's trials so far, and to the observations derived from them."""
        return self


class CandidateSampler(optuna.samplers.BaseSampler):
    """An Optuna sampler that chooses the candidate at ``index`` of ``grid``."""

    def __init__(self, grid: CandidateGrid, index: int) -> None:
        self._grid, self._index = grid, index

    def infer_relative_search_space(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
    ) -> dict[str, optuna.distributions.BaseDistribution]:
        return distributions(self._grid)

    def sample_relative(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        search_space: dict[str, optuna.distributions.BaseDistribution],  # noqa: ARG002
    ) -> dict[str, object]:
        return dict(self._grid.params(self._grid.candidates[self._index]))

    def sample_independent(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,  # noqa: ARG002
    ) -> object:
        raise ValueError(f"{param_name} is no dimension of the candidates")
