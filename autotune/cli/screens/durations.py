"""Budgets as people write them -> seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from pytimeparse.timeparse import timeparse

from autotune.errors import UsageError

ACCEPTED = "give a duration with its unit, such as 90m, 4h, 1h30m, 1.5h, 2d, 45s, PT4H or 04:00:00"
LONGEST_S = 365 * 86_400.0

_BARE_NUMBER = re.compile(r"[+-]?[\d.,_]+(e[+-]?\d+)?", re.IGNORECASE)
_TWO_PART_CLOCK = re.compile(r"\d+:\d+(\.\d+)?")


def parse_duration(text: str) -> float:
    """Seconds, greater than 0 and at most a year.

    Raises:
        UsageError: one sentence with what is accepted. A bare number is refused because its unit
            would be a guess, ``04:00`` because it may mean hours or minutes.
    """
    given = text.strip()
    if _BARE_NUMBER.fullmatch(given):
        raise UsageError(f"{text!r} has no unit: {ACCEPTED}")
    if _TWO_PART_CLOCK.fullmatch(given):
        raise UsageError(f"{text!r} may mean hours or minutes: write {given}:00 or {ACCEPTED.removeprefix('give ')}")
    seconds = _iso_or_clock(given)
    if seconds is None:
        seconds = _units(given)
    if seconds is None or not math.isfinite(seconds):
        raise UsageError(f"{text!r} is no duration: {ACCEPTED}")
    if seconds <= 0:
        raise UsageError(f"{text!r} is not longer than zero: {ACCEPTED}")
    if seconds > LONGEST_S:
        raise UsageError(f"{text!r} is longer than a year: {ACCEPTED}")
    return seconds


def _iso_or_clock(text: str) -> float | None:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(timedelta).validate_python(text).total_seconds()
    except ValidationError:
        return None


def _units(text: str) -> float | None:
    try:
        seconds = timeparse(text)
    except (ValueError, OverflowError):
        return None
    return None if seconds is None else float(seconds)
