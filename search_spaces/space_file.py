"""Reads a space file, checked key by key."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from search_spaces.configuration import KnobValue, Resources
from search_spaces.errors import SpaceError
from search_spaces.frameworks import TITLES
from search_spaces.knobs import KNOBS, Kind, Knob
from search_spaces.knobs.model import show
from search_spaces.legality.knob_rules import unknown_knob
from search_spaces.native import UNSET, must_be_known
from search_spaces.yaml_text import Entry, problem

PRESETS = Path(__file__).with_name("presets")
MAX_VALUES = 1000
"""Most values of one knob."""

_KEYS = ("description", "extends", "require", "knobs")
_REQUIRE = ("device", "gpus", "nodes", "frameworks")
_RANGE = ("min", "max", "step", "log2")


@dataclass(frozen=True)
class Requirements:
    """Requirements of a space on the machine."""

    device: str = ""
    """Required device, ``cpu`` or ``cuda``; empty for any."""
    gpus: int = 0
    """Least GPUs on each node."""
    nodes: int = 1
    """Least nodes."""
    frameworks: tuple[str, ...] = ()
    """Allowed frameworks; empty for any."""

    def problem(self, resources: Resources) -> str | None:
        """Returns a sentence on the first requirement that ``resources`` lack, or ``None``."""
        if self.device == "cpu" and resources.gpus:
            return f"the space is for CPU runs, and {resources.gpus} GPUs are given"
        need = max(self.gpus, int(self.device == "cuda"))
        if resources.gpus < need:
            return f"the space needs {need} GPU{'s' if need > 1 else ''} on each node, and {resources.gpus} are given"
        if resources.nodes < self.nodes:
            return f"the space needs {self.nodes} nodes, and {resources.nodes} is given"
        if self.frameworks and resources.framework not in self.frameworks:
            return f"the space is for {', '.join(self.frameworks)}, not {resources.framework}"
        return None

    def as_json(self) -> dict[str, object]:
        given = {"device": self.device, "gpus": self.gpus, "nodes": self.nodes, "frameworks": list(self.frameworks)}
        usual = Requirements()
        return {k: v for k, v in given.items() if v != getattr(usual, k) and v != []}


@dataclass(frozen=True)
class Inherited:
    """The parts of a space that come from its preset; for a preset itself, all parts."""

    knobs: frozenset[str] = frozenset()
    frameworks: tuple[str, ...] = ()
    """Frameworks of the preset; empty for any framework."""
    requires: bool = False
    """True if the requirements come from the preset."""


@dataclass(frozen=True)
class Content:
    """Parsed content of a space file."""

    values: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    """Knob -> its listed values, at least one."""
    require: Requirements = field(default_factory=Requirements)
    extends: str = ""
    left_out: frozenset[str] = frozenset()
    """Knobs of the extended preset that this file drops."""
    description: str = ""
    inherited: Inherited = field(default_factory=Inherited)

    @property
    def as_inherited(self) -> Inherited:
        """This content as the inherited parts of a file that extends it."""
        return Inherited(frozenset(self.values), self.require.frameworks, True)


def understand(entry: Entry, source: str) -> Content:
    """Returns the content of a space file.

    Raises:
        SpaceError: in one sentence with file, line, key, and the expected value.
    """
    document = _mapping(entry, source, "the file", "a mapping with the key knobs")
    _check_keys(document, _KEYS, source)
    knobs = _mapping(document.get("knobs", Entry({}, 0)), source, "knobs", "a mapping of knobs to values")
    extends = _text(document.get("extends"), source, "extends", "the name of a preset")
    if extends:
        preset_path(extends, source, document["extends"].line)
    dropped = frozenset(name for name, e in knobs.items() if e.value is None)
    for name in knobs:
        if name not in KNOBS:
            raise problem(source, knobs[name].line, f"knobs: {unknown_knob(name)}")
        if name in dropped and not extends:
            raise problem(source, knobs[name].line, f"knobs.{name}: expected a value, a list or a range, got nothing")
    return Content(
        values={n: values_of(KNOBS[n], e, source) for n, e in knobs.items() if n not in dropped},
        require=_requirements(document.get("require"), source),
        extends=extends,
        left_out=dropped,
        description=_text(document.get("description"), source, "description", "a sentence"),
    )


def values_of(knob: Knob, entry: Entry, source: str) -> tuple[KnobValue, ...]:
    """Returns the values of one knob: of a list, a range, or a single value.

    Raises:
        SpaceError: as ``understand``.
    """
    if knob.derived:
        text = f"knobs.{knob.name} follows from rows per update and micro_batch_size; list micro_batch_size instead"
        raise problem(source, entry.line, text)
    if isinstance(entry.value, dict):
        return _range(knob, entry.value, entry.line, source)
    entries = entry.value if isinstance(entry.value, list) else [entry]
    if not entries:
        raise problem(source, entry.line, f"knobs.{knob.name}: the list is empty; expected {knob.expected}")
    if len(entries) > MAX_VALUES:
        raise problem(source, entry.line, f"knobs.{knob.name}: more than {MAX_VALUES} values")
    found: dict[str, KnobValue] = {}
    for item in entries:
        unset = item.value == UNSET
        value = _unset(knob, item.line, len(entries), source) if unset else _parsed(knob, item, source)
        if repr(value) in found:
            raise problem(source, item.line, f"knobs.{knob.name}: {show(value)} is listed twice")
        found[repr(value)] = value
    return tuple(found.values())


def preset_for(gpus: int, nodes: int = 1) -> str:
    """Returns the name of the preset for a machine with ``gpus`` GPUs on each of ``nodes``."""
    if gpus == 0:
        return "cpu"
    return "multi-node" if nodes > 1 else "node-8gpu" if gpus > 1 else "single-gpu"


def preset_names() -> tuple[str, ...]:
    """Returns the names of the presets, sorted."""
    return tuple(sorted(path.stem for path in PRESETS.glob("*.yaml")))


def preset_path(name: str, source: str, line: int = 0) -> Path:
    """Returns the file of a preset. Raises SpaceError with the nearest name for an unknown preset."""
    names = preset_names()
    if name in names:
        return PRESETS / f"{name}.yaml"
    close = difflib.get_close_matches(name[:80], names, n=1, cutoff=0.4)
    hint = f"did you mean {close[0]}" if close else f"the presets are {', '.join(names)}"
    raise problem(source, line, f"there is no preset {show(name)}; {hint}")


def _unset(knob: Knob, line: int, count: int, source: str) -> KnobValue:
    """Returns ``UNSET`` as one of ``count`` values; raises SpaceError if the knob must be known or ``count`` is 1."""
    known = must_be_known(knob)
    if not known and count > 1:
        return UNSET
    why = "it must be known in every trial and cannot be unset" if known else "unset stands in a list beside values"
    text = f"knobs.{knob.name}: {why}; list its values, or leave the knob out to keep the baseline's"
    raise problem(source, line, text)


def _parsed(knob: Knob, entry: Entry, source: str) -> KnobValue:
    if isinstance(entry.value, list | dict):
        text = f"knobs.{knob.name}: expected {knob.expected}, got {entry.described}"
        raise problem(source, entry.line, text)
    try:
        return knob.parse(entry.value)
    except SpaceError as error:
        raise problem(source, entry.line, f"knobs.{knob.name}: {error}") from None


def _range(knob: Knob, entries: dict[str, Entry], line: int, source: str) -> tuple[KnobValue, ...]:
    key = f"knobs.{knob.name}"
    if knob.kind not in (Kind.INT, Kind.FLOAT):
        raise problem(source, line, f"{key}: expected {knob.expected}, got a range")
    _check_keys(entries, _RANGE, source, key)
    if "min" not in entries or "max" not in entries:
        raise problem(source, line, f"{key}: a range needs min and max")
    low, high = (_bound(knob, entries[end], source) for end in ("min", "max"))
    if low > high:
        raise problem(source, line, f"{key}: min {low:g} is more than max {high:g}")
    if "log2" in entries:
        if entries["log2"].value is not True or "step" in entries:
            raise problem(source, entries["log2"].line, f"{key}: log2 is either true or left out, and excludes step")
        numbers = _doubling(low, high)
    else:
        numbers = _stepping(knob, low, high, entries.get("step"), line, source)
    if len(numbers) > MAX_VALUES:
        raise problem(source, line, f"{key}: the range has more than {MAX_VALUES} values; use a larger step")
    return tuple(int(n) if knob.kind is Kind.INT else float(n) for n in numbers)


def _bound(knob: Knob, entry: Entry, source: str) -> float:
    value = _parsed(knob, entry, source)
    if isinstance(value, str):
        raise problem(source, entry.line, f"knobs.{knob.name}: expected a number, got {show(value)}")
    return value


def _doubling(low: float, high: float) -> list[float]:
    if low <= 0:
        return [low, *_doubling(1, high)] if high >= 1 else [low]
    numbers = [low]
    while numbers[-1] * 2 <= high:
        numbers.append(numbers[-1] * 2)
    return numbers


def _stepping(knob: Knob, low: float, high: float, step: Entry | None, line: int, source: str) -> list[float]:
    key = f"knobs.{knob.name}"
    size = 1 if step is None and knob.kind is Kind.INT else None if step is None else step.value
    whole = knob.kind is Kind.INT
    right = isinstance(size, int) if whole else isinstance(size, int | float)
    if isinstance(size, bool) or not right or not isinstance(size, int | float) or not 0 < size < 1e15:
        where = step.line if step else line
        raise problem(source, where, f"{key}: expected a step above 0{' in whole numbers' if whole else ''}")
    count = int((high - low) / size + 1e-9) + 1
    return [round(low + i * size, 12) for i in range(min(count, MAX_VALUES + 1))]


def _requirements(entry: Entry | None, source: str) -> Requirements:
    if entry is None or entry.value is None:
        return Requirements()
    given = _mapping(entry, source, "require", "a mapping of what the machine must have")
    _check_keys(given, _REQUIRE, source, "require")
    device = _text(given.get("device"), source, "require.device", "cpu or cuda")
    if device not in ("", "cpu", "cuda"):
        raise problem(source, given["device"].line, f"require.device: expected cpu or cuda, got {show(device)}")
    return Requirements(
        device=device,
        gpus=_count(given.get("gpus"), 0, source, "require.gpus"),
        nodes=_count(given.get("nodes"), 1, source, "require.nodes"),
        frameworks=_frameworks(given.get("frameworks"), source),
    )


def _frameworks(entry: Entry | None, source: str) -> tuple[str, ...]:
    if entry is None:
        return ()
    items = entry.value if isinstance(entry.value, list) else [entry]
    for item in items:
        if item.value not in TITLES:
            expected = f"expected one of {', '.join(TITLES)}, got {item.described}"
            raise problem(source, item.line or entry.line, f"require.frameworks: {expected}")
    return tuple(str(item.value) for item in items)


def _count(entry: Entry | None, otherwise: int, source: str, key: str) -> int:
    if entry is None:
        return otherwise
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int) or not otherwise <= value <= 65536:
        raise problem(source, entry.line, f"{key}: expected a number from {otherwise} to 65536, got {entry.described}")
    return value


def _mapping(entry: Entry, source: str, key: str, expected: str) -> dict[str, Entry]:
    if not isinstance(entry.value, dict):
        raise problem(source, entry.line, f"{key}: expected {expected}, got {entry.described}")
    return entry.value


def _text(entry: Entry | None, source: str, key: str, expected: str) -> str:
    if entry is None:
        return ""
    if not isinstance(entry.value, str):
        raise problem(source, entry.line, f"{key}: expected {expected}, got {entry.described}")
    return entry.value


def _check_keys(entries: Mapping[str, Entry], names: tuple[str, ...], source: str, inside: str = "") -> None:
    for name, entry in entries.items():
        if name in names:
            continue
        close = difflib.get_close_matches(name[:80], names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}" if close else f"expected {', '.join(names)}"
        if not inside and name in KNOBS:
            hint = "knobs are listed under the key knobs"
        prefix = f"{inside}: " if inside else ""
        raise problem(source, entry.line, f"{prefix}unknown key {show(name)}; {hint}")
