"""Counts feasible and failed trials for each value of each knob."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autotune.domain import FailureReason, Outcome, Trial
from autotune.domain.differences import chosen_differences
from autotune.statistics.retries import corrected
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue


@dataclass(frozen=True)
class ValueRecord:
    """Outcomes of the trials with one value of one knob."""

    knob: str
    value: KnobValue
    tried: int
    feasible: int
    failures: Mapping[str, int]
    """Number of failed trials by cause, such as ``OOM in update (host)``; most frequent first."""


def feasibility(trials: Iterable[Trial]) -> tuple[ValueRecord, ...]:
    """Counts the trials for each value of each knob with at least two tried values, sorted by knob and value.

    Omits trials without a verdict (unfinished, cancelled, disturbed from outside).
    """
    decided = [t for t in corrected(trials) if t.kind.is_searched and has_verdict(t)]
    tried: dict[str, dict[KnobValue, list[Trial]]] = {}
    for trial in decided:
        for name, value in trial.configuration.items():
            tried.setdefault(name, {}).setdefault(value, []).append(trial)
    return tuple(
        _record(name, value, by_value[value])
        for name, by_value in sorted(tried.items())
        if len(by_value) > 1
        for value in sorted(by_value, key=_value_order)
    )


def cause(outcome: Outcome) -> str:
    """Returns a failure's short name, equal for failures of one kind: ``OOM in update (host)``."""
    if outcome.reason is None:
        return "longest batch not passed"
    where = f" in {outcome.phase}" if outcome.phase else ""
    pool = f" ({outcome.pool.value})" if outcome.pool else ""
    return f"{outcome.reason.value}{where}{pool}"


def advice(trial: Trial, trials: Iterable[Trial]) -> str:
    """Returns a failure's suggestion without settings it already has; after an OOM, with the nearest fitting trial."""
    outcome = trial.outcome
    if outcome is None or outcome.reason is not FailureReason.OOM:
        return "" if outcome is None else outcome.suggestion
    said = outcome.suggestion
    if trial.configuration.get("gradient_checkpointing") is True:
        said = said.replace(" or turn gradient_checkpointing on", "")
    near = [(chosen_differences(trial.configuration, t.configuration), t) for t in trials if t.feasible]
    apart, fitted = min(near, key=lambda one: (len(one[0]), one[1].number), default=({}, trial))
    if not 1 <= len(apart) <= 2:
        return said
    values = " and ".join(f"{name} {knob_value(there, name)}" for name, (_, there) in apart.items())
    return "; ".join(filter(None, (said, f"{values} fitted (#{fitted.number})")))


def _record(name: str, value: KnobValue, trials: list[Trial]) -> ValueRecord:
    failures = Counter(cause(t.outcome or Outcome()) for t in trials if not t.fits)
    ordered = dict(sorted(failures.items(), key=lambda item: (-item[1], item[0])))
    return ValueRecord(name, value, len(trials), sum(t.fits for t in trials), ordered)


def has_verdict(trial: Trial) -> bool:
    """Tells whether the trial finished with a verdict on its configuration (neither CANCELLED nor INFRA)."""
    return trial.state.is_finished and not trial.inconclusive


def _value_order(value: KnobValue) -> tuple[bool, float, str]:
    number = isinstance(value, int | float)
    return (not number, float(value) if number else 0.0, str(value))
