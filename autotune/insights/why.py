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
"""Failed neighbours that are shown; a study of thousands has thousands."""


@dataclass(frozen=True)
class Change:
    """One knob's value in another configuration and in this one; ``None``: not set."""

    knob: str
    before: KnobValue | None
    after: KnobValue | None

    def words(self) -> str:
        """``micro_batch_size 2 -> 8``."""
        return f"{self.knob} {knob_value(self.before)} -> {knob_value(self.after)}"


@dataclass(frozen=True)
class FailedNeighbour:
    """A trial one knob away without a speed: it failed, or was stopped because it could not win."""

    change: Change
    """From the answer to that trial."""
    trial: int
    cause: str | None = None
    """How it failed; ``None`` if it was stopped."""
    at_least: float | None = None
    """Gain of the answer over a trial that was stopped, at least."""


@dataclass(frozen=True)
class RowReasons:
    """Reasons for one row of a recommendation."""

    title: str
    limits: tuple[str, ...]
    """What limits it; then, for memory, which step further a trial could not hold."""
    shares: KnobShares | None
    """What each changed knob contributes; ``None`` where none is changed."""
    failed_neighbours: tuple[FailedNeighbour, ...]


@dataclass(frozen=True)
class Why:
    """Reasons for a whole recommendation, with counts of the search space."""

    rows: tuple[RowReasons, ...]
    ruled_out: tuple[RuledOut, ...]
    combinations: int
    """Different combinations of the space, legal or not."""
    legal: int
    tried: int
    """Those that were run."""
    exact: bool
    """``combinations`` and ``legal`` are counts, not estimates."""
    began: tuple[str, ...] = ()
    """What the search began with, in words; empty: with no earlier study."""


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
