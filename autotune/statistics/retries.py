"""Corrects trials for retries: for each configuration the later verdict counts. Pure.

A retry is a VERIFY trial made by ``autotune retry``. See docs/decisions/0008-retries.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune.domain import Configuration, FailureReason, Trial, TrialState

SOURCE = "retry"
"""``Trial.source`` of a retry."""

BUDGET_ENDED = "the study's budget ended"
SHARE_ENDED = "its share of the study's budget ended"
"""``Outcome.message`` of a trial that the study's budget ended; ``SHARE_ENDED`` for a search trial."""


def is_retry(trial: Trial) -> bool:
    """Tells whether the user requested this run of a configuration."""
    return trial.source == SOURCE


def broken_off(trials: Iterable[Trial], configuration: Configuration) -> bool:
    """Tells whether the budget ended a trial of this configuration, and no other trial of it gave a verdict."""
    own = [t for t in trials if t.configuration == configuration]
    return any(stopped_by_budget(t) for t in own) and not any(decided(t) for t in own)


def undecided(trials: Iterable[Trial], configuration: Configuration) -> bool:
    """Tells whether the budget, the machine or the tuner's death ended all trials of this configuration."""
    own = [t for t in trials if t.configuration == configuration and t.state.is_finished]
    ended = {t.outcome.reason for t in own if t.outcome is not None}
    return bool(own) and ended <= {FailureReason.CANCELLED, FailureReason.INFRA}


def stopped_by_budget(trial: Trial) -> bool:
    """Tells whether the end of the budget stopped the trial, which then gives no verdict on its configuration."""
    ended = trial.outcome
    if ended is None or ended.reason is not FailureReason.CANCELLED:
        return False
    return ended.message in (BUDGET_ENDED, SHARE_ENDED)


def disproved(trials: Iterable[Trial]) -> frozenset[int]:
    """Returns the numbers of the failed trials whose configuration passed in a later retry."""
    trials = tuple(trials)
    passed: dict[Configuration, int] = {}
    for trial in trials:
        if is_retry(trial) and trial.feasible:
            passed[trial.configuration] = max(trial.number, passed.get(trial.configuration, -1))
    if not passed:
        return frozenset()
    return frozenset(
        t.number for t in trials if t.state is TrialState.FAIL and t.number < passed.get(t.configuration, -1)
    )


def corrected(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Returns ``trials`` as if every configuration had been searched once, with the verdict of its latest retry.

    If the verdict of the retry differs from that of the baseline or search trial, the retry replaces that trial, with
    its kind and the retry's number. Failures that a retry disproved are omitted.
    """
    trials = tuple(trials)
    latest = {t.configuration: t for t in sorted(trials, key=lambda t: t.number) if is_retry(t) and decided(t)}
    if not latest:
        return trials
    gone, kinds = set(disproved(trials)), {}
    for trial in trials:
        retry = latest.get(trial.configuration)
        if retry is None or not trial.kind.is_searched or is_retry(trial):
            continue
        if not decided(trial) or trial.feasible != retry.feasible:
            gone.add(trial.number)
            kinds[retry.number] = trial.kind
    return tuple(t.with_(kind=kinds[t.number]) if t.number in kinds else t for t in trials if t.number not in gone)


def decided(trial: Trial) -> bool:
    """Tells whether a finished trial gives a verdict: it was feasible, or failed because of its configuration."""
    if trial.state is TrialState.FAIL:
        return trial.outcome is not None and not trial.inconclusive
    return trial.feasible
