"""Estimates hours and cost of the user's whole training run, with the baseline and with the recommendation. Pure.

Both produce the same number of completion tokens, so the hours are those tokens divided by tokens/hour, at the recorded
lengths. Start-up, checkpoints and evaluation take the same time in both and are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.domain import Gain, Objective, Recommendation, StudySpec, Trial
from autotune.errors import UsageError
from autotune.recommendation.recommend import row_of
from autotune.statistics import evidence
from autotune.wording.numbers import format_duration, tells_nothing
from autotune.wording.sentences import level_words
from search_spaces.batch import held_gpus

MOST_UPDATES, HIGHEST_PRICE = 10**9, 1e9
"""Limits beyond any real run, in any currency, that reject typing errors and keep products finite."""


@dataclass(frozen=True)
class Estimate:
    """A figure with its two-sided interval; an interval of zero width means that no configuration ran twice."""

    value: float
    low: float
    high: float
    level: float = 0.95
    """Confidence level of the interval, 0..1."""

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.level)

    def words(self, show: Any) -> str:
        """Formats the figure by ``show``, which converts a number to text."""
        if self.low == self.high or (self.low > 0.0 and tells_nothing(self.low, self.high)):
            return str(show(self.value))
        return f"{show(self.value)} ({level_words(self.level)} interval {show(self.low)} to {show(self.high)})"


@dataclass(frozen=True)
class WholeRun:
    """Hours and cost of a training run of ``updates``."""

    updates: int
    tokens_per_update: float
    """Completion tokens of an update of the baseline, or of the reference if the baseline has no figure."""
    gpus: int
    """GPUs held with the answer; 0 on a CPU."""
    gpus_before: int
    """GPUs held with the baseline; 0 on a CPU."""
    before: Estimate | None
    """Hours with the baseline; ``None`` if it failed or was not measured."""
    after: Estimate
    """Hours with the answer."""
    saved: Estimate | None
    """Saved hours, by the interval of the gain, which is narrower than that of two figures."""
    saved_gpu_hours: Estimate | None
    """Saved GPU-hours; negative if the answer holds more GPUs and saves too few hours."""
    price: float | None = None
    """Price of one GPU for one hour, in the user's currency."""

    @property
    def gpu_hours(self) -> dict[str, Estimate | None]:
        """GPU-hours before, after and saved."""
        before = None if self.before is None else self.before.times(self.gpus_before)
        return {"before": before, "after": self.after.times(self.gpus), "saved": self.saved_gpu_hours}

    @property
    def cost(self) -> dict[str, Estimate | None]:
        """Cost of ``gpu_hours``, in the user's currency; empty without a price."""
        price = self.price
        return {} if price is None else {n: e and e.times(price) for n, e in self.gpu_hours.items()}


def whole_run(
    spec: StudySpec, trials: Sequence[Trial], answer: Recommendation | None, updates: int, price: float | None = None
) -> WholeRun | None:
    """Estimates the whole run with the first row of ``answer``; ``None`` if there is no row. Raises ``UsageError`` for
    a price if the study uses no GPUs."""
    gpus = spec.resources.total_gpus
    if price is not None and not gpus:
        raise UsageError(f"--price {price:g} is for a GPU-hour, and this study runs on a CPU; leave it out")
    row = answer.rows[0] if answer is not None and answer.rows else None
    anchor = evidence.reference(trials, spec.baseline)
    if row is None or anchor is None:
        return None
    cycles = anchor.speed_cycles()
    each = sum(c.completion_tokens for c in cycles) / sum(c.updates for c in cycles)
    whole = updates * each
    base = row_of(spec, trials, spec.baseline)
    before = None if base is None else hours_of(whole, base)
    after = before if before is not None and row.configuration == spec.baseline else hours_of(whole, row)
    held = row.gpus, held_gpus(spec.baseline, spec.resources)
    found = WholeRun(updates, each, *held, before, after, None, None, price)
    if before is None or row.gain is None:
        return found
    spent = {Objective.PER_HOUR: before, Objective.PER_GPU_HOUR: before.times(found.gpus_before)}
    hours, gpu_hours = (_saved(whole.value, row.gain_in(objective)) for objective, whole in spent.items())
    return replace(found, saved=hours, saved_gpu_hours=gpu_hours)


def _saved(before: float, gain: Gain | None) -> Estimate | None:
    """Returns the saving of a gain over the baseline, from the baseline's hours or GPU-hours."""
    if gain is None:
        return None
    value, low, high = (before * (1.0 - 1.0 / (1.0 + each)) for each in (gain.value, gain.low, gain.high))
    return Estimate(value, low, high, gain.level)


def hours_of(tokens: float, row: Any) -> Estimate:
    """Returns the hours of a run of ``tokens`` at the speed of a row, measured or predicted."""
    return Estimate(*(tokens / speed for speed in (row.tokens_per_hour, row.high, row.low)))


def whole_run_words(run: WholeRun) -> tuple[str, ...]:
    """Lists sentences: hours and cost with the recommendation instead of the baseline, and the hours saved."""
    hours = _instead(_duration, run.after, run.before)
    spent = run.gpu_hours
    if run.gpus and max(run.gpus, run.gpus_before) > 1:
        hours += f"; GPU-hours {_instead(lambda value: f'{value:,.1f}', spent['after'], spent['before'])}"
    if run.cost:
        hours += f"; cost {_instead(lambda value: f'{value:,.2f}', run.cost['after'], run.cost['before'])}"
    said = [f"{run.updates:,} updates of {run.tokens_per_update:,.0f} completion tokens: {hours}"]
    if run.saved is not None:
        none = {"hours": run.saved, "GPU-hours": run.saved_gpu_hours if run.gpus != run.gpus_before else None}
        doubt = [f"; the interval includes no {name} saved" for name, each in none.items() if each and each.low <= 0]
        said.append(f"saved: {run.saved.words(_duration)}{''.join(doubt)}")
    return tuple(said)


def _instead(show: Callable[[float], str], after: Estimate | None, before: Estimate | None) -> str:
    """Formats ``1 h 33 min instead of 4 h 09 min``."""
    known = "unknown" if after is None else show(after.value)
    return known if before is None else f"{known} instead of {show(before.value)}"


def _duration(hours: float) -> str:
    return f"{'-' if hours < 0 else ''}{format_duration(abs(hours) * 3600.0)}"


def whole_run_json(run: WholeRun | None) -> dict[str, Any] | None:
    """Converts ``WholeRun`` to plain data; hours and cost with their intervals."""
    if run is None:
        return None
    hours = {"before": run.before, "after": run.after, "saved": run.saved}
    return {
        "updates": run.updates,
        "completion_tokens_per_update": run.tokens_per_update,
        "gpus": run.gpus,
        "gpus_before": run.gpus_before,
        "price_per_gpu_hour": run.price,
        "hours": {name: _plain(estimate) for name, estimate in hours.items()},
        "gpu_hours": {name: _plain(estimate) for name, estimate in run.gpu_hours.items()} if run.gpus else None,
        "cost": {name: _plain(estimate) for name, estimate in run.cost.items()} or None,
    }


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def check_asked(updates: int | None, price: float | None) -> None:
    """Raises ``UsageError`` for a price without updates, a price that is not positive, or unrealistic numbers."""
    if updates is not None and not 1 <= updates <= MOST_UPDATES:
        raise UsageError(f"--updates: expected your whole run's updates, at least 1 and at most {MOST_UPDATES:,}")
    if price is not None and HIGHEST_PRICE < price < math.inf:
        raise UsageError(f"--price {price:g}: expected what a GPU costs for an hour, at most {HIGHEST_PRICE:,.0f}")
    if price is not None and not (price > 0 and math.isfinite(price)):
        raise UsageError(f"--price {price:g}: expected what a GPU costs for an hour, a number above 0 such as 2.50")
    if price is not None and updates is None:
        raise UsageError("--price needs --updates N, the updates your whole run makes")
