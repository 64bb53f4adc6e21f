"""Text for people: made safe for a terminal, and numbers, knobs and shares in few characters."""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

from autotune.domain import Configuration
from search_spaces.configuration import KnobValue

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c\n]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-~]"  # any other
)
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

SHORT_NAMES: Mapping[str, str] = {
    "micro_batch_size": "mb",
    "num_generations": "gen",
    "precision": "prec",
    "master_weights": "master",
    "gradient_checkpointing": "ckpt",
    "rollout_engine": "engine",
    "gpu_memory_utilization": "kvmem",
    "zero_stage": "zero",
    "offload_optimizer": "off.opt",
    "offload_parameters": "off.par",
    "attn_implementation": "attn",
    "torch_compile": "compile",
    "optimizer": "optim",
    "logprob_rows": "lprows",
    "logprob_token_chunk": "lptok",
    "logprob_vocab_chunk": "lpvoc",
    "steps_per_generation": "spg",
    "gradient_accumulation_steps": "acc",
}
"""Column heads for knobs, in the order they are shown: those that decide most first, derived ones last."""

_ORDER = {name: place for place, name in enumerate(SHORT_NAMES)}


def clean(text: object) -> str:
    """One line with nothing that could steer a terminal: no escapes, control or direction characters."""
    return " ".join(clean_line(line) for line in str(text).splitlines()).strip()


def clean_line(line: str) -> str:
    """``clean`` for a log line: tabs become spaces and of a redrawn line only the last state is kept."""
    bare = _ESCAPES.sub("", line)
    drawn = [part for part in bare.split("\r") if part.strip()]
    last = drawn[-1] if drawn else ""
    return "".join(_harmless(character) for character in last.expandtabs(4)).rstrip()


def _harmless(character: str) -> str:
    if character in _BIDIRECTIONAL:
        return ""
    category = unicodedata.category(character)
    if category == "Cs":
        return "\ufffd"
    return "" if category == "Cc" else character


def fit(text: object, width: int) -> str:
    """``clean`` text in at most ``width`` terminal cells, cut with an ellipsis."""
    safe = clean(text)
    if cell_len(safe) <= width:
        return safe
    return set_cell_size(safe, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def rate(value: float | None) -> str:
    """Tokens/hour in four digits: ``820.8k``, ``1.234M``; ``-`` when there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    number, unit = value, ""
    for following in ("k", "M", "G", "T"):
        if abs(number) < 999.95:
            break
        number, unit = number / 1000.0, following
    if not unit:
        return f"{number:.0f}"
    return (
        f"{number:.1f}{unit}"
        if abs(number) >= 99.995
        else f"{number:.2f}{unit}"
        if abs(number) >= 9.9995
        else (f"{number:.3f}{unit}")
    )


def signed_percent(ratio: float) -> str:
    """0.213 -> ``+21.3 %``."""
    return f"{ratio * 100:+.1f} %" if math.isfinite(ratio) else "unknown"


def clock_time(at: float, *, today: float | None = None) -> str:
    """Local ``16:42``; with ``today`` the date too when it is another day."""
    moment = time.localtime(at)
    if today is not None and time.localtime(today)[:3] != moment[:3]:
        return time.strftime("%Y-%m-%d %H:%M", moment)
    return time.strftime("%H:%M", moment)


def knob_value(value: KnobValue | None) -> str:
    """``on``/``off`` for switches, ``-`` for a knob that is not set."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else clean(value)


def short_name(knob: str) -> str:
    """The column head of a knob: its short name, else the first letters of its words."""
    known = SHORT_NAMES.get(knob)
    if known is not None:
        return known
    return "".join(word[:2] for word in clean(knob).split("_"))[:8] or "?"


def in_order(knobs: Iterable[str]) -> tuple[str, ...]:
    """Knob names in the order they are shown everywhere."""
    return tuple(sorted(set(knobs), key=lambda name: (_ORDER.get(name, len(_ORDER)), name)))


def differing(configurations: Iterable[Configuration]) -> tuple[str, ...]:
    """The knobs that do not have one and the same value in all ``configurations``."""
    found = list(configurations)
    names = {name for configuration in found for name in configuration}
    return in_order(name for name in names if len({(name in c, _key(c.get(name))) for c in found}) > 1)


def _key(value: KnobValue | None) -> tuple[str, str]:
    return type(value).__name__, repr(value)


def changes(configuration: Configuration, baseline: Configuration) -> tuple[tuple[str, str, str], ...]:
    """(knob, before, after) for every knob that differs from the baseline, as text."""
    difference = baseline.difference(configuration)
    return tuple((clean(n), knob_value(difference[n][0]), knob_value(difference[n][1])) for n in in_order(difference))


def brief(configuration: Configuration, baseline: Configuration) -> str:
    """``mb 4, ckpt off``: what differs from the baseline in few characters."""
    parts = [f"{short_name(name)} {after}" for name, _, after in changes(configuration, baseline)]
    return ", ".join(parts) or "as the baseline"


def cells_for(shares: Sequence[float], width: int) -> tuple[int, ...]:
    """Whole cells for shares of one bar, summing to ``width`` (largest remainders); shares need not sum to 1."""
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


def bar(share: float, width: int) -> str:
    """A plain bar of ``width`` cells, filled to ``share`` (clamped to 0..1)."""
    filled = round(width * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    return "█" * filled + "░" * (width - filled)
