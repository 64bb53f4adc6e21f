"""Combinations and trials that were ruled out, with the reason: by a rule, by memory bounds, or by a trial. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autotune.domain import Configuration, FailureReason, Trial, TrialState
from autotune.insights.feasibility import cause
from autotune.statistics.retries import disproved

GUARDS = frozenset({FailureReason.QUALITY, FailureReason.NAN})
"""Failures with wrong numbers, although the run itself did not break."""


class RulingCause(StrEnum):
    """Kind of reason that ruled out a combination or a trial."""

    LEGALITY = "legality"
    """A rule, before anything ran."""
    MEMORY = "memory"
    """Combinations that need at least as much memory as a trial that ran out of it."""
    GUARD = "guard"
    """A trial ran, and its numbers were wrong."""
    FAILURE = "failure"
    """A trial failed in another way."""
    STOPPED = "stopped"
    """A trial was stopped early because it could not win."""
    SLOWER = "slower"
    """A trial was measured completely, and is not faster."""
    UNPROVEN = "unproven"
    """A trial was measured faster, but its gain was not proven."""


@dataclass(frozen=True)
class RuledOut:
    """One reason, with the combinations and trials that it ruled out."""

    by: RulingCause
    name: str
    """Name of the rule, or the cause in few words."""
    count: int
    """Number of combinations of the space if ``by`` is LEGALITY or MEMORY, else of trials."""
    sentence: str = ""
    """Example for people."""
    trials: tuple[int, ...] = ()
    """Numbers of the trials that gave the reason."""
    exact: bool = True
    """False if ``count`` is an estimate, because the space is too large to enumerate."""


def by_trials(
    trials: Sequence[Trial], answers: Sequence[int], faster: Collection[Configuration] = ()
) -> tuple[RuledOut, ...]:
    """Collects the trials that are not the answer by reason, each once: guards, failures, stopped, slower, unproven.

    Args:
        answers: numbers of the trials behind the recommendation and its reference.
        faster: configurations that measured faster than the answer they compete with.
    """
    mended = disproved(trials)
    groups: dict[tuple[RulingCause, str], list[Trial]] = {}
    for trial in sorted(trials, key=lambda t: t.number):
        found = _verdict(trial, faster) if trial.number not in mended and trial.number not in answers else None
        if found is not None:
            groups.setdefault(found, []).append(trial)
    order = list(RulingCause)
    made = (
        RuledOut(by, name, len(found), _example(by, found[0]), tuple(t.number for t in found))
        for (by, name), found in groups.items()
    )
    return tuple(sorted(made, key=lambda r: (order.index(r.by), -r.count, r.name)))


def _verdict(trial: Trial, faster: Collection[Configuration]) -> tuple[RulingCause, str] | None:
    outcome = trial.outcome
    if trial.state is TrialState.FAIL and outcome is not None and outcome.reason is not None:
        if outcome.inconclusive:
            return None
        return (RulingCause.GUARD if outcome.reason in GUARDS else RulingCause.FAILURE), cause(outcome)
    if trial.at_most is not None:
        return RulingCause.STOPPED, "cannot win"
    if trial.feasible and trial.tokens_per_hour and not trial.emulated:
        return _not_chosen(trial.configuration in faster)
    return None


def _not_chosen(faster: bool) -> tuple[RulingCause, str]:
    return (
        (RulingCause.UNPROVEN, "measured faster, not proven")
        if faster
        else (RulingCause.SLOWER, "measured and not faster")
    )


def _example(by: RulingCause, trial: Trial) -> str:
    if by in (RulingCause.SLOWER, RulingCause.UNPROVEN) or trial.outcome is None:
        return ""
    return trial.outcome.sentence()
