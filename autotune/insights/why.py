"""Explains a recommended configuration: the share of each changed knob, and the failures one knob away. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune.domain import Configuration, Trial, TrialKind, TrialState
from autotune.domain.differences import chosen_differences
from autotune.insights.feasibility import cause
from autotune.insights.ruled_out import RuledOut
from autotune.statistics import evidence
from autotune.statistics.retries import disproved
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue

if TYPE_CHECKING:  # it imports numpy and scipy, which a short command has no need of
    from autotune.statistics.knob_shares import KnobShares

MOST_FAILED = 20
"""Most failed neighbours that are shown."""


@dataclass(frozen=True)
class Change:
    """A knob's values in two configurations; ``None``: not set."""

    knob: str
    before: KnobValue | None
    after: KnobValue | None

    def words(self) -> str:
        """Formats the change: ``micro_batch_size 2 -> 8``."""
        return f"{self.knob} {knob_value(self.before, self.knob)} -> {knob_value(self.after, self.knob)}"


@dataclass(frozen=True)
class FailedNeighbour:
    """A trial one knob away without a speed: it failed, or was stopped because it could not win."""

    change: Change
    """Change from the answer to that trial."""
    trial: int
    cause: str | None = None
    """Cause of the failure; ``None`` if the trial was stopped."""
    at_least: float | None = None
    """Least gain of the answer over a trial that was stopped."""


@dataclass(frozen=True)
class RowReasons:
    """Reasons for one row of a recommendation."""

    title: str
    limits: tuple[str, ...]
    """Sentences on the limiting resource and, for memory, on the next step that a trial could not hold."""
    shares: KnobShares | None
    """Contribution of each changed knob; ``None`` if none is changed."""
    failed_neighbours: tuple[FailedNeighbour, ...]


@dataclass(frozen=True)
class Why:
    """Reasons for a whole recommendation, with counts of the search space."""

    rows: tuple[RowReasons, ...]
    ruled_out: tuple[RuledOut, ...]
    combinations: int
    """Number of different combinations of the space, legal or not."""
    legal: int
    tried: int
    """Number of combinations that were run."""
    exact: bool
    """True if ``combinations`` and ``legal`` are counts; False if they are estimates."""
    began: tuple[str, ...] = ()
    """Sentences on the earlier studies that the search began with; empty without any."""


def failed_neighbours(trials: Sequence[Trial], configuration: Configuration) -> tuple[FailedNeighbour, ...]:
    """Returns the first trials one knob away from ``configuration`` that failed or were stopped."""
    held, mended = evidence.feasible(trials), disproved(trials)
    own = evidence.speed(held[configuration]) if configuration in held else None
    found = []
    for trial in sorted(trials, key=lambda t: t.number):
        apart = chosen_differences(configuration, trial.configuration)
        if len(apart) != 1 or trial.number in mended:
            continue
        ((name, (here, there)),) = apart.items()
        change = Change(name, here, there)
        if trial.at_most and own:
            found.append(FailedNeighbour(change, trial.number, at_least=own / trial.at_most - 1.0))
        elif _failed(trial) and trial.outcome is not None:
            found.append(FailedNeighbour(change, trial.number, cause=cause(trial.outcome)))
    return tuple(found[:MOST_FAILED])


def _failed(trial: Trial) -> bool:
    searched = trial.kind.is_searched or trial.kind is TrialKind.CONFIRM
    blamed = trial.outcome is not None and not trial.outcome.ok and not trial.inconclusive
    return searched and trial.state is TrialState.FAIL and blamed
