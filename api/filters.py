"""Conditions on trials: state, kind, failure, feasibility, and values of knobs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastapi.exceptions import RequestValidationError

from autotune.domain import Configuration, FailureReason, Trial, TrialKind, TrialState
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS

RANGE = ".."
ORDER_OF_KNOBS = "name:value, or name:low..high with either end left out"


@dataclass(frozen=True)
class KnobFilter:
    """Condition on one knob: a value, or a range of numbers with both ends."""

    knob: str
    value: str | None = None
    low: float | None = None
    high: float | None = None

    def admits(self, configuration: Configuration) -> bool:
        """Tells whether a configuration meets the condition; one that does not set the knob never does."""
        found = configuration.get(self.knob)
        if found is None:
            return False
        if self.value is not None:
            return _same(found, self.value)
        if isinstance(found, bool | str):
            return False
        return (self.low is None or found >= self.low) and (self.high is None or found <= self.high)


@dataclass(frozen=True)
class TrialConditions:
    """Conditions a trial must meet: all fields hold, and within a list any entry."""

    states: Sequence[TrialState] = ()
    kinds: Sequence[TrialKind] = ()
    failures: Sequence[FailureReason] = ()
    feasible: bool | None = None
    knobs: Sequence[KnobFilter] = ()

    def admits(self, trial: Trial) -> bool:
        reason = None if trial.outcome is None else trial.outcome.reason
        return (
            (not self.states or trial.state in self.states)
            and (not self.kinds or trial.kind in self.kinds)
            and (not self.failures or reason in self.failures)
            and (self.feasible is None or trial.feasible is self.feasible)
            and all(any(one.admits(trial.configuration) for one in some) for some in self._by_knob)
        )

    @cached_property
    def _by_knob(self) -> Sequence[Sequence[KnobFilter]]:
        return [[k for k in self.knobs if k.knob == name] for name in dict.fromkeys(k.knob for k in self.knobs)]


def knob_filter(text: str) -> KnobFilter:
    """Parses ``micro_batch_size:4``, ``micro_batch_size:2..8``, ``micro_batch_size:..8`` or ``precision:bf16``.

    Raises:
        RequestValidationError: the text has another form, or there is no such knob.
    """
    name, colon, said = text.partition(":")
    if not colon or not said:
        raise _refused(text, f"expected {ORDER_OF_KNOBS}")
    if name not in KNOBS:
        near = difflib.get_close_matches(name, KNOBS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise _refused(text, f"there is no such knob{hint}")
    if RANGE not in said:
        return KnobFilter(name, value=said)
    low, _, high = said.partition(RANGE)
    ends = [_number(text, end) if end else None for end in (low, high)]
    if ends == [None, None]:
        raise _refused(text, "a range needs at least one end")
    return KnobFilter(name, low=ends[0], high=ends[1])


def _same(found: KnobValue, text: str) -> bool:
    if isinstance(found, bool):
        return text.casefold() == str(found).casefold()
    if isinstance(found, str):
        return text == found
    try:
        return float(text) == found
    except ValueError:
        return False


def _number(text: str, end: str) -> float:
    try:
        value = float(end)
    except ValueError:
        raise _refused(text, f"an end of a range must be a number; expected {ORDER_OF_KNOBS}") from None
    if not math.isfinite(value):
        raise _refused(text, "an end of a range must be finite")
    return value


def _refused(text: str, message: str) -> RequestValidationError:
    error: dict[str, Any] = {"type": "knob", "loc": ("query", "knob"), "msg": message, "input": text}
    return RequestValidationError([error])
