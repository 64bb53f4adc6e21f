"""Budgets as people write them -> seconds, and seconds as people read them."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from pydantic import TypeAdapter, ValidationError
from pytimeparse.timeparse import timeparse

from autotune.errors import UsageError

ACCEPTED = "give a duration with its unit, such as 90m, 4h, 1h30m, 1.5h, 2d, 45s, PT4H or 04:00:00"
LONGEST_S = 365 * 86_400.0

_BARE_NUMBER = re.compile(r"[+-]?[\d.,_]+(e[+-]?\d+)?", re.IGNORECASE)
_ISO = TypeAdapter(timedelta)
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
    try:
        return _ISO.validate_python(text).total_seconds()
    except ValidationError:
        return None


def _units(text: str) -> float | None:
    try:
        seconds = timeparse(text)
    except (ValueError, OverflowError):
        return None
    return None if seconds is None else float(seconds)


def format_duration(seconds: float) -> str:
    """For people, rounded to two units: ``850 ms``, ``45 s``, ``9 min 30 s``, ``4 h 05 min``, ``2 d 3 h``."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest:02d} s" if rest else f"{minutes} min"
    minutes = round(seconds / 60)
    if minutes < 1440:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest:02d} min" if rest else f"{hours} h"
    days, rest = divmod(round(seconds / 3600), 24)
    return f"{days} d {rest} h" if rest else f"{days} d"
