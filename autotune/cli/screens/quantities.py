"""Parses budgets and memory sizes to seconds and bytes."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal

from pytimeparse.timeparse import timeparse

from autotune.errors import UsageError

DURATIONS = "give a duration with its unit, such as 90m, 4h, 1h30m, 1.5h, 2d, 45s, PT4H or 04:00:00"
LONGEST_S = 365 * 86_400.0

_BARE_NUMBER = re.compile(r"[+-]?[\d.,_]+(e[+-]?\d+)?", re.IGNORECASE)
_TWO_PART_CLOCK = re.compile(r"\d+:\d+(\.\d+)?")

SIZES = "give a size with its unit: 6GiB, 6g or 512MiB (binary: 1 GiB = 1024 MiB), or 6GB (decimal: 10^9 bytes)"
LARGEST = 2**50

_SIZE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([kmgt])?(i?b)?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_duration(text: str, option: str = "--budget") -> float:
    """Returns seconds, greater than 0 and at most a year. Raises ``UsageError``, which names ``option``, for any other
    text: a number without unit, or ``04:00``, which may mean hours or minutes."""
    given = text.strip()
    if _BARE_NUMBER.fullmatch(given):
        raise UsageError(f"{option} {text!r} has no unit: {DURATIONS}")
    if _TWO_PART_CLOCK.fullmatch(given):
        raise UsageError(f"{option} {text!r} may mean hours or minutes: write {given}:00, or {DURATIONS}")
    seconds = _iso_or_clock(given)
    if seconds is None:
        seconds = _units(given)
    if seconds is None or not math.isfinite(seconds):
        raise UsageError(f"{option} {text!r} is no duration: {DURATIONS}")
    if seconds <= 0:
        raise UsageError(f"{option} {text!r} is not longer than zero: {DURATIONS}")
    if seconds > LONGEST_S:
        raise UsageError(f"{option} {text!r} is longer than a year: {DURATIONS}")
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


def parse_size(text: str) -> int:
    """Returns bytes, at least 1 and at most 1 PiB. ``6GiB`` and ``6g`` are binary, ``6GB`` is decimal. Raises
    ``UsageError`` for any other text and for a number without unit."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--memory-limit {text!r} is no size: {SIZES}")
    number, prefix, suffix = match[1], (match[2] or "").lower(), (match[3] or "").lower()
    if not prefix and not suffix:
        raise UsageError(f"--memory-limit {text!r} has no unit: {SIZES}")
    if not prefix and suffix == "ib":
        raise UsageError(f"--memory-limit {text!r} is no size: {SIZES}")
    base = 1000 if suffix == "b" else 1024
    size = int(Decimal(number) * base ** _POWERS[prefix])
    if not 1 <= size <= LARGEST:
        raise UsageError(f"--memory-limit {text!r} is not between one byte and 1 PiB: {SIZES}")
    return size
