"""Formats rates, ratios, seconds, bytes and shares in few characters, the same on every screen."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rate(value: float | None) -> str:
    """Formats tokens/hour in four digits: ``820.8k``, ``1.234M``; ``-`` for ``None``."""
    if value is None or not math.isfinite(value):
        return "-"
    number, unit = value, ""
    for following in ("k", "M", "G", "T"):
        if abs(number) < 999.95:
            break
        number, unit = number / 1000.0, following
    if not unit:
        return f"{number:.0f}"
    decimals = 1 if abs(number) >= 99.995 else 2 if abs(number) >= 9.9995 else 3
    return f"{number:.{decimals}f}{unit}"


def signed_percent(ratio: float) -> str:
    """Formats a ratio minus one: 0.213 is ``+21.3 %``, 4.2 is ``5.20x``; a value that rounds to zero is ``+0.0 %``."""
    if not math.isfinite(ratio):
        return "unknown"
    return f"{round(ratio * 100, 1) + 0.0:+.1f} %" if ratio <= 2.0 else _times(ratio)


def _times(ratio: float) -> str:
    many = 1.0 + ratio
    return f"{many:.2f}x" if many < 9.995 else f"{many:.1f}x" if many < 99.95 else f"{many:,.0f}x"


def tells_nothing(low: float, high: float) -> bool:
    """Tells whether the ends of an interval of positive figures differ more than fourfold."""
    return high > 4.0 * low


def ratio_words(value: float, low: float, high: float, level: str = "") -> str:
    """Returns ``+25.0 % (-1.0 % to +57.0 %)`` for ratios minus 1, all in times if the highest is; in words where the
    interval tells nothing.

    Args:
        level: of the interval, put before it.
    """
    if tells_nothing(1.0 + low, 1.0 + high):
        return "not told apart from noise" if low <= 0.0 <= high else f"{faster_word(value)}, by how much is not known"
    show = signed_percent if high <= 2.0 else _times
    return f"{show(value)} ({f'{level} interval ' if level else ''}{show(low)} to {show(high)})"


def faster_word(ratio: float) -> str:
    """Returns ``faster`` or ``slower``."""
    return "faster" if ratio > 0.0 else "slower"


def counted(number: int, noun: str) -> str:
    """Formats a count with its noun: ``1 trial``, ``2 trials``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def figure(value: float | None, form: str) -> str:
    """Formats ``value`` by a form such as ``{:.2f} s``; ``-`` for ``None``."""
    return "-" if value is None else form.format(value)


def percent(share: float | None, digits: int = 0) -> str:
    """Formats a share of 0..1: ``45 %``; ``-`` for ``None``."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def format_duration(seconds: float) -> str:
    """Formats seconds in at most two units: ``850 ms``, ``45 s``, ``9 min 30 s``, ``4 h 05 min``, ``2 d 3 h``."""
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


def format_size(size: float) -> str:
    """Formats bytes in three digits and a binary unit: ``512 MiB``, ``4.25 GiB``."""
    value = float(size)
    if value < 0:
        return "-" + format_size(-value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if round(value) < 1000:
            return _three_digits(value, unit)
        value /= 1024
    return _three_digits(value, "TiB")


def known_size(size: float | None) -> str:
    """Formats bytes as ``format_size`` does; ``-`` for ``None``."""
    return "-" if size is None else format_size(size)


def _three_digits(value: float, unit: str) -> str:
    if unit == "B" or value >= 99.95:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}" if value >= 9.995 else f"{value:.2f} {unit}"


def cells_for(shares: Sequence[float], width: int) -> tuple[int, ...]:
    """Returns whole cells for the shares of a bar, by largest remainders; the cells sum to ``width``."""
    weights = [share if math.isfinite(share) and share > 0 else 0.0 for share in shares]
    largest = max(weights, default=0.0)
    if largest <= 0 or width <= 0:
        return tuple(0 for _ in shares)
    scaled = [weight / largest for weight in weights]
    exact = [width * part / sum(scaled) for part in scaled]
    cells = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: cells[i] - exact[i])
    for i in by_remainder[: width - sum(cells)]:
        cells[i] += 1
    return tuple(cells)
