"""Hours and money of the user's whole training run, with the baseline and with the answer. Pure.

A run of N updates makes as many completion tokens with either configuration, so its hours are those tokens over
tokens/hour, at the lengths the study recorded. What lies outside a training step (start-up, checkpoints, evaluation)
is the same for both and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain import Recommendation, RecommendationRow, StudySpec, Trial
from autotune.errors import UsageError
from autotune.recommendation.recommend import row_of
from autotune.statistics import evidence
from autotune.wording.numbers import format_duration


@dataclass(frozen=True)
class Estimate:
    """A figure with its two-sided 95 % interval; an interval of no width says that nothing ran twice."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def words(self, show: Any) -> str:
        """By ``show``, which makes text of a number."""
        if self.low == self.high:
            return str(show(self.value))
        return f"{show(self.value)} (95 % interval {show(self.low)} to {show(self.high)})"


@dataclass(frozen=True)
class WholeRun:
    """What a run of ``updates`` takes."""

    updates: int
    tokens_per_update: float
    """Completion tokens, as the baseline (else the reference) had them."""
    gpus: int
    """Held by the run; 0 on a CPU."""
    before: Estimate | None
    """Hours with the baseline; ``None`` where it failed or was not measured."""
    after: Estimate
    """Hours with the answer."""
    saved: Estimate | None
    """Hours; by the interval of the gain, which is narrower than that of two figures."""
    price: float | None = None
    """Of one GPU for one hour, in the user's currency."""

    def money(self, hours: Estimate | None) -> Estimate | None:
        """``None`` without a price."""
        return None if self.price is None or hours is None else hours.times(self.price * self.gpus)


def whole_run(
    spec: StudySpec, trials: Sequence[Trial], answer: Recommendation | None, updates: int, price: float | None = None
) -> WholeRun | None:
    """With the first row of ``answer``; ``None`` where there is no row.

    Raises:
        UsageError: a price for GPUs that the study does not hold.
    """
    gpus = spec.resources.gpus * spec.resources.nodes
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
    before = None if base is None else _hours(whole, base)
    after = before if before is not None and row.configuration == spec.baseline else _hours(whole, row)
    saved = None
    if before is not None and row.gain is not None:
        saved = Estimate(
            *(before.value * (1.0 - 1.0 / (1.0 + g)) for g in (row.gain.value, row.gain.low, row.gain.high))
        )
    return WholeRun(updates, each, gpus, before, after, saved, price)


def _hours(tokens: float, row: RecommendationRow) -> Estimate:
    return Estimate(*(tokens / speed for speed in (row.tokens_per_hour, row.high, row.low)))


def whole_run_words(run: WholeRun) -> tuple[str, ...]:
    """One sentence for each: the run with the baseline, with the answer, and what that saves."""
    scale = f"{run.updates:,} updates of {run.tokens_per_update:,.0f} completion tokens"
    before = "the baseline has no figure" if run.before is None else f"with the baseline {_words(run, run.before)}"
    found = [f"{scale}: {before}", f"with this answer {_words(run, run.after)}"]
    if run.saved is not None:
        proven = "" if run.saved.low > 0 else "; the interval includes nothing saved"
        found.append(f"saved: {_words(run, run.saved)}{proven}")
    return tuple(found)


def _words(run: WholeRun, hours: Estimate) -> str:
    text = hours.words(lambda value: format_duration(value * 3600.0))
    if run.gpus > 1:
        text += f" on {run.gpus} GPUs, {hours.times(run.gpus).words(lambda value: f'{value:,.1f}')} GPU-hours"
    money = run.money(hours)
    return text if money is None else f"{text}; cost {money.words(lambda value: f'{value:,.2f}')}"


def whole_run_json(run: WholeRun | None) -> dict[str, Any] | None:
    """The same as plain data; hours and money each with their interval."""
    if run is None:
        return None
    hours = {"before": run.before, "after": run.after, "saved": run.saved}
    return {
        "updates": run.updates,
        "completion_tokens_per_update": run.tokens_per_update,
        "gpus": run.gpus,
        "price_per_gpu_hour": run.price,
        "hours": {name: _plain(estimate) for name, estimate in hours.items()},
        "cost": None if run.price is None else {name: _plain(run.money(estimate)) for name, estimate in hours.items()},
    }


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def check_asked(updates: int | None, price: float | None) -> None:
    """Raises ``UsageError``: a price without updates, or one that is none."""
    if price is not None and not (price > 0 and math.isfinite(price)):
        raise UsageError(f"--price {price:g}: expected what a GPU costs for an hour, a number above 0 such as 2.50")
    if price is not None and updates is None:
        raise UsageError("--price needs --updates N, the updates your whole run makes")
