"""Formats rates, ratios, seconds, bytes and shares in few characters, the same on every screen."""

from __future__ import annotations

import math
from collections.abc import Sequence


def rate(value: float | None, low: float = 0.0, high: float = 0.0) -> str:
    """Formats tokens/hour in four digits, or those of its interval: ``820.8k``, ``1.234M``; ``-`` for ``None``."""
    if value is None or not math.isfinite(value):
        return "-"
    scales = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
    scale, unit = next((each for each in scales if abs(value) < 999.95 * each[0]), scales[-1])
    number = abs(value / scale)
    decimals = 0 if not unit else 1 if number >= 99.995 else 2 if number >= 9.9995 else 3
    return f"{value / scale:.{_supported(decimals, (high - low) / scale)}f}{unit}"


def per_second(tokens_per_hour: float, low: float = 0.0, high: float = 0.0, gpus: int = 0) -> str:
    """Formats tokens/hour in the unit of other tools: ``62.8 tokens/s``, or ``15.7 tokens/s for each of 4 GPUs``."""
    unit, each = (3600.0 * gpus, f" for each of {gpus} GPUs") if gpus > 1 else (3600.0, "")
    value = tokens_per_hour / unit
    decimals = _supported(2 if value < 9.995 else 1 if value < 99.95 else 0, (high - low) / unit)
    return f"{value:,.{decimals}f} tokens/s{each}"


def _supported(decimals: int, width: float) -> int:
    """Returns the decimals, at most ``decimals``, that an interval of that width supports: two digits of its half."""
    return max(0, min(decimals, 1 - math.floor(math.log10(width / 2)))) if 0.0 < width < math.inf else decimals


def signed_percent(ratio: float, low: float = 0.0, high: float = 0.0) -> str:
    """Formats a ratio minus one, in the digits of its interval if there is one: 0.213 is ``+21.3 %``, 4.2 ``5.20x``;
    ``faster`` or ``slower`` where the interval tells no more."""
    if not math.isfinite(ratio):
        return "unknown"
    if tells_nothing(1.0 + low, 1.0 + high):
        return "faster" if ratio > 0.0 else "slower"
    if max(ratio, high) > 2.0:
        decimals = 2 if ratio < 8.995 else 1 if ratio < 98.95 else 0
        return f"{1.0 + ratio:,.{_supported(decimals, high - low)}f}x"
    decimals = _supported(1, 100 * (high - low))
    if round(100 * ratio, 1) and not round(100 * ratio, decimals):
        decimals = 1  # the sign of an end near 0 is told
    return f"{round(ratio * 100, decimals) + 0.0:+.{decimals}f} %"


def tells_nothing(low: float, high: float) -> bool:
    """Tells whether an interval of positive figures is uninformative: its ends differ more than fourfold."""
    return high > 4.0 * low


def ratio_words(value: float, low: float, high: float, level: str = "") -> str:
    """Formats ``+25 % (95 % interval -1 % to +57 %)`` for ratios minus 1 with an interval of that ``level``, all as
    multiples if the highest needs it; a phrase if the interval is uninformative."""
    figure, least, most = (signed_percent(each, low, high) for each in (value, low, high))
    if tells_nothing(1.0 + low, 1.0 + high):
        return "not told apart from noise" if low <= 0.0 <= high else f"{figure}, by how much is not known"
    return f"{figure} ({f'{level} interval ' if level else ''}{least} to {most})"


def counted(number: int, noun: str) -> str:
    """Formats a count with its noun: ``1 trial``, ``2 trials``."""
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"


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
