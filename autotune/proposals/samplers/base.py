"""Interface of autotune's samplers: each makes an Optuna sampler for one proposal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna

from autotune.domain import Configuration, Trial
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.translation import Frozen, Observation, asked, rebuilt_study

Proposal = tuple[Configuration, str]
"""A configuration, and the first part of ``Trial.source``."""


@dataclass(frozen=True)
class Field:
    """Candidates, and the mask of the candidates that may be proposed."""

    grid: CandidateGrid
    left: Mask


@dataclass(frozen=True, eq=False)
class Turn:
    """The input of one proposal."""

    field: Field
    """The track's candidates; at least one may be proposed."""
    nearby: tuple[Field, ...]
    """Further candidates, if not all are listed: those that the living process can run, and neighbours of the base."""
    around: Callable[[Configuration], Field] | None
    """Returns the neighbours of a candidate; ``None`` if all candidates are listed."""
    track: Sequence[Observation]
    """Observations whose values count on the track, ordered by trial number."""
    waits: Callable[[], bool]
    """Tells whether the leader is to be confirmed before a trial that promises little."""
    process: Configuration | None
    """Configuration of the living (warm) process; ``None``: a trial needs a new process."""
    frozen: Frozen
    """Cached Optuna trials of the track."""
    seed: int
    """Uniform 32 bits, derived from the study's seed and the trial's number."""

    def ask(
        self, sampler: optuna.samplers.BaseSampler, source: str, grid: CandidateGrid, left: Mask, times: int = 1
    ) -> Proposal:
        """Asks an Optuna study of the track for a candidate in the mask ``left``, as ``translation.asked`` does."""
        study = rebuilt_study(grid, self.track, sampler, self.frozen)
        return grid.candidates[asked(study, grid, left, times)], source


class StudySampler:
    """Creates the ``optuna.samplers.BaseSampler`` of a proposal; the same history gives the same proposal."""

    name: str
    """Name for ``--sampler``."""
    asks: int = 1
    """Most draws; if none is a candidate, the candidate nearest to the first is taken. 1 if all are candidates."""

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        """Returns a new sampler, seeded by ``turn``."""
        raise NotImplementedError

    def propose(self, turn: Turn) -> Proposal | None:
        """Proposes a candidate; ``None`` if none is worth a trial now."""
        return turn.ask(self.sampler(turn), self.name, turn.field.grid, turn.field.left, self.asks)

    def bind(self, task: Task | None, prior_data: PriorData | None = None) -> StudySampler:  # noqa: ARG002
        """Returns a copy for one study, with its task and prior knowledge."""
        return self

    def fit(self, trials: Sequence[Trial], known: Sequence[Observation]) -> StudySampler:  # noqa: ARG002
        """Returns a copy fitted to the study's trials so far, and to the observations derived from them."""
        return self


class CandidateSampler(optuna.samplers.RandomSampler):
    """An Optuna sampler that chooses the candidate at ``index`` of ``grid``."""

    def __init__(self, grid: CandidateGrid, index: int) -> None:
        super().__init__()
        self._params = grid.params(grid.place(index))

    def sample_independent(
        self,
        study: optuna.Study,  # noqa: ARG002
        trial: optuna.trial.FrozenTrial,  # noqa: ARG002
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,  # noqa: ARG002
    ) -> object:
        return self._params[param_name]
