"""Cleans text for terminals and formats knobs in few characters, the same on every screen."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.domain import Configuration, CycleKind
from autotune.domain.differences import Differences
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
"""Column heads of knobs, in display order: knobs with the largest effect first, derived ones last."""

_ORDER = {name: place for place, name in enumerate(SHORT_NAMES)}
CYCLE_WORDS = dict(zip(CycleKind, ("warm-up", "sampled", "replayed", "twice", "limit"), strict=True))


def clean(text: object) -> str:
    """Returns text as one line without escape sequences, control characters or direction marks."""
    return " ".join(clean_line(line) for line in str(text).splitlines()).strip()


def bounded(text: str, longest: int = 400) -> str:
    """Cuts each word of more than ``longest`` characters in the middle, and states its length."""
    return " ".join(
        word if len(word) <= longest else f"{word[: longest // 4]}...{word[-20:]} ({len(word):,} characters)"
        for word in text.split(" ")
    )


def fault_words(fault: Mapping[str, Any]) -> str:
    """Describes a fault that pydantic found: ``expected a whole number, got 'one'``."""
    text = clean(fault["msg"]).removeprefix("Value error, ").partition(", unable")[0]
    if not text.startswith("Input should be "):
        return text.replace("Extra inputs are not permitted", "there is no such name here")
    expected = text.removeprefix("Input should be ").replace("a valid integer", "a whole number")
    return f"expected {expected.replace('a valid ', 'a ')}, got {bounded(clean(fault['input']), 80)!r}"


def clean_line(line: str) -> str:
    """Cleans a log line as ``clean`` does; tabs become spaces, and of a redrawn line the last state stays."""
    bare = _ESCAPES.sub("", line)
    drawn = [part for part in bare.split("\r") if part.strip()]
    last = drawn[-1] if drawn else ""
    return "".join(_harmless(character) for character in last.expandtabs(4)).rstrip()


def _harmless(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cs":
        return "\ufffd"
    return "" if category == "Cc" or character in _BIDIRECTIONAL else character


def knob_value(value: KnobValue | None, name: str = "") -> str:
    """Formats the value of a knob: ``on`` or ``off`` for a switch, ``-`` for an unset knob, ``1 GiB`` if ``name`` ends
    in ``_bytes``."""
    if value is None:
        return "-"
    if name.endswith("_bytes") and isinstance(value, int) and value % (1 << 20) == 0:
        return f"{value >> 30} GiB" if value % (1 << 30) == 0 else f"{value >> 20} MiB"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else clean(value)


def short_name(knob: str) -> str:
    """Returns the column head of a knob: its short name, its own name if short, else the initials of its words."""
    known = SHORT_NAMES.get(knob)
    if known is not None:
        return known
    name = clean(knob)
    return name if 0 < len(name) <= 12 else "".join(word[:2] for word in name.split("_"))[:8] or "?"


def in_order(knobs: Iterable[str]) -> tuple[str, ...]:
    """Sorts knob names into display order."""
    return tuple(sorted(set(knobs), key=lambda name: (_ORDER.get(name, len(_ORDER)), name)))


def differing(configurations: Iterable[Configuration]) -> tuple[str, ...]:
    """Lists the knobs whose value is not the same in all ``configurations``, in display order."""
    found = list(configurations)
    names = {name for configuration in found for name in configuration}
    return in_order(name for name in names if len({(name in c, repr(c.get(name))) for c in found}) > 1)


def changes(configuration: Configuration, baseline: Configuration) -> tuple[tuple[str, str, str], ...]:
    """Returns (knob, before, after) as text for every knob that differs from the baseline."""
    return change_words(baseline.difference(configuration))


def change_words(found: Differences) -> tuple[tuple[str, str, str], ...]:
    """Formats differences as (knob, before, after), in display order."""
    return tuple((clean(n), knob_value(found[n][0], n), knob_value(found[n][1], n)) for n in in_order(found))


def brief(configuration: Configuration, baseline: Configuration) -> str:
    """Describes the differences from the baseline: ``micro_batch_size 4, gradient_checkpointing off``."""
    parts = [f"{name} {after}" for name, _, after in changes(configuration, baseline)]
    return ", ".join(parts) or "as the baseline"
