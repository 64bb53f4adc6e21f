"""Conditions on trials, and orders of them, for the API's lists and the page's table."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastapi.exceptions import RequestValidationError

from autotune.domain import FailureReason, Trial, TrialKind, TrialState
from autotune.insights.standings import place
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS

RANGE = ".."
FORM = "name:value, or name:low..high with either end left out"


def _ascending(of: Callable[[Trial], float | None]) -> Callable[[Trial], tuple[float, ...]]:
    """Returns a sort key: smallest first, trials without the figure last."""
    return lambda trial: (math.inf if (figure := of(trial)) is None else figure, trial.number)


SORTS: dict[str, tuple[str, Callable[[Trial], tuple[float, ...]]]] = {
    "speed": ("best first", place),
    "newest": ("newest first", lambda trial: (-trial.number,)),
    "number": ("in the order they ran", lambda trial: (trial.number,)),
    "wall_seconds": ("shortest first", _ascending(lambda trial: trial.seconds)),
    "peak_bytes": ("least memory first", _ascending(lambda trial: trial.device_peak or trial.host_peak)),
}
"""Orders by name: words, and a key that is unique within a study."""


@dataclass(frozen=True)
class TrialConditions:
    """Conditions on trials: every field must match, and in a list at least one entry."""

    states: Sequence[TrialState] = ()
    kinds: Sequence[TrialKind] = ()
    failures: Sequence[FailureReason] = ()
    feasible: bool | None = None
    knobs: Sequence[tuple[str, str]] = ()
    """Name and condition, as for ``knob_is``; of several with one name any."""

    def admits(self, trial: Trial) -> bool:
        """Tells whether a trial meets the conditions."""
        reason = None if trial.outcome is None else trial.outcome.reason
        return (
            (not self.states or trial.state in self.states)
            and (not self.kinds or trial.kind in self.kinds)
            and (not self.failures or reason in self.failures)
            and (self.feasible is None or trial.feasible is self.feasible)
            and all(
                any(knob_is(trial.configuration.get(name), text) for known, text in self.knobs if known == name)
                for name, _ in self.knobs
            )
        )


def knob_is(value: KnobValue | None, condition: str) -> bool:
    """Tells whether a knob's value equals the condition, or lies in its range: ``4``, ``2..8``, ``2..`` or ``..8``."""
    if knob_value(value) == condition:
        return True
    if isinstance(value, bool):
        return str(value).casefold() == condition.casefold()
    ends = range_of(condition)
    return isinstance(value, int | float) and ends is not None and ends[0] <= value <= ends[1]


@lru_cache(maxsize=256)
def range_of(condition: str) -> tuple[float, float] | None:
    """Returns the ends of a range, both included; equal ends for a number. ``None`` if the text is neither."""
    low, between, high = condition.partition(RANGE)
    try:
        ends = (float(low or "-inf"), float(high or "inf")) if between and (low or high) else (float(low), float(low))
    except ValueError:
        return None
    written = [end for end, text in zip(ends, (low, high), strict=True) if text]
    return ends if all(map(math.isfinite, written)) else None


def knob_condition(text: str) -> tuple[str, str]:
    """Parses ``micro_batch_size:4``, ``micro_batch_size:2..8``, ``micro_batch_size:..8`` or ``precision:bf16``.

    Raises:
        RequestValidationError: the text has another form, or there is no such knob.
    """
    name, _, condition = text.partition(":")
    if not condition:
        raise _refused(text, f"expected {FORM}")
    if name not in KNOBS:
        near = difflib.get_close_matches(name, KNOBS, n=1)
        raise _refused(text, "there is no such knob" + (f"; did you mean {near[0]}?" if near else ""))
    if RANGE in condition and range_of(condition) is None:
        raise _refused(text, f"a range needs at least one end, and its ends are finite numbers; expected {FORM}")
    return name, condition


def _refused(text: str, message: str) -> RequestValidationError:
    error: dict[str, Any] = {"type": "knob", "loc": ("query", "knob"), "msg": message, "input": text}
    return RequestValidationError([error])
