"""Configurations as columns of numbers, by phase: only what acts on a phase, and each different row once.

A phase depends on few knobs, so of fifty thousand configurations only some hundred rows differ in it. What the model
computes, it computes for these rows, and ``index`` hands it out to the configurations. Computed once for a set of
candidates and used for every fit (``PhaseTimes.forecast_of``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Phase
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.times.facts import READ, USED, Kept, facts_of, process_kind
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Kind, Knob, defaults

PHASES = tuple(USED)
"""``Phase`` values, in the order of a cycle."""
MAIN = (Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value, Phase.SYNC.value)
"""Phases that a knob without phases, as an allocator's, acts on."""
OFF = 1e9
"""In a knob's column: it cannot act here."""
GENERATIONS = "generations"
"""Stands for ``steps_per_generation`` and ``gradient_accumulation_steps``: rollouts of a cycle."""
NEIGHBOURS: Mapping[str, tuple[str, ...]] = {Phase.UPDATE.value: ("rollout_engine",)}
"""Knobs of another phase that leave their mark: an engine beside the trainer takes caches and cores."""
_REPLACED = ("steps_per_generation", "gradient_accumulation_steps")
LARGEST = 1 << 62
"""Of the numbers that stand for rows."""


@dataclass(frozen=True)
class PhaseRows:
    """The different rows of one phase."""

    own: Mapping[str, Column]
    """By knob, what the learnt part sees: the base-2 logarithm of a number, a code for a choice; ``OFF``."""
    facts: Mapping[str, Column]
    """What the prior sees."""
    index: NDArray[np.intp]
    """Of each configuration, its row."""
    keys: tuple[bytes, ...]
    """Of each row; equal rows have equal keys whichever configurations they were computed with."""


@dataclass(frozen=True)
class Features:
    """Of a sequence of configurations, in their order."""

    phases: Mapping[str, PhaseRows]
    starts: NDArray[np.intp]
    """``ProcessKind`` of each."""

    def part(self, places: NDArray[np.int64]) -> Features:
        """Some of the configurations, in the order of ``places``."""
        phases = {phase: replace(rows, index=rows.index[places]) for phase, rows in self.phases.items()}
        return Features(phases, self.starts[places])


@lru_cache(maxsize=1)
def knobs_of_phases() -> Mapping[str, tuple[str, ...]]:
    """By ``Phase`` value the knobs its learnt part sees: those the catalogue says act on it."""
    found = {}
    for phase in PHASES:
        names = [k.name for k in KNOBS.values() if k.name not in _REPLACED and _acts(k, phase)]
        found[phase] = (*names, *NEIGHBOURS.get(phase, ()), *((GENERATIONS,) if phase in MAIN[:1] else ()))
    return found


def _acts(knob: Knob, phase: str) -> bool:
    # Without phases it acts on all, if on anything: what it does to memory says so.
    return phase in knob.phases or (not knob.phases and bool(knob.memory) and phase in MAIN)


@lru_cache(maxsize=256)
def is_number(name: str) -> bool:
    """Whether a knob's column holds logarithms; else it holds codes."""
    knob = KNOBS.get(name)
    if knob is None:
        return name == GENERATIONS
    return knob.kind in (Kind.INT, Kind.FLOAT) and knob.unit not in ("stage", "level")


def features(task: Task, configurations: Sequence[Configuration]) -> Features:
    """The columns of ``configurations``; pure, and the only part whose time grows with their number."""
    return tabled(read(task, configurations))


def read(task: Task, configurations: Sequence[Configuration]) -> NDArray[np.float64]:
    """What there is to know of each configuration, a row each: its knobs, its facts, its ``ProcessKind``. A row depends
    on no other."""
    unset = defaults(task.resources.framework, task.resources.device)
    rows = [dict(configuration.items()) for configuration in configurations]
    given = {name for row in rows for name in row}
    said = {name: [row.get(name) for row in rows] for name in given}
    nothing: list[KnobValue | None] = [None] * len(rows)
    looked = list(zip(*(said.get(name, nothing) for name in READ), strict=True))
    kept: Kept = {}
    distinct = dict(zip(looked, rows, strict=True))
    few = {key: (facts_of(task, row, kept), process_kind(task, row)) for key, row in distinct.items()}
    facts = [few[key][0] for key in looked]
    groups: dict[tuple[str, ...], _Group] = {}
    columns = [_column(name, said, unset, len(rows), groups) for name in _knobs()]
    columns.append(np.log2(np.array([fact["generations"] for fact in facts], dtype=np.float64)))
    columns += [np.array([fact[name] for fact in facts], dtype=np.float64) for name in _facts()]
    return np.column_stack([*columns, [float(few[key][1]) for key in looked]])


def tabled(values: NDArray[np.float64]) -> Features:
    """What was read of configurations by phase, each different row once."""
    codes = _codes(values)
    return Features({phase: _rows_of(phase, values, codes) for phase in PHASES}, values[:, -1].astype(np.intp))


@lru_cache(maxsize=1)
def _knobs() -> tuple[str, ...]:
    return tuple(sorted({name for names in knobs_of_phases().values() for name in names} - {GENERATIONS}))


@lru_cache(maxsize=1)
def _facts() -> tuple[str, ...]:
    return tuple(sorted({name for names in USED.values() for name in names}))


@lru_cache(maxsize=16)
def _places(phase: str) -> NDArray[np.intp]:
    """Of a phase, the columns of its knobs, then of its facts."""
    knobs = (*_knobs(), GENERATIONS)
    own = [knobs.index(name) for name in knobs_of_phases()[phase]]
    return np.array([*own, *(len(knobs) + _facts().index(name) for name in USED[phase])], dtype=np.intp)


Codes = Mapping[int, tuple[NDArray[np.int64], int]]
"""Of each column that is not the same everywhere: its values by their order, and how many there are."""


def _codes(values: NDArray[np.float64]) -> Codes:
    found = {}
    varying = np.flatnonzero(np.any(values != values[:1], axis=0)) if len(values) else ()
    for place in varying:
        several, codes = np.unique(values[:, place], return_inverse=True)
        found[int(place)] = (codes.reshape(-1).astype(np.int64), len(several))
    return found


def _rows_of(phase: str, values: NDArray[np.float64], codes: Codes) -> PhaseRows:
    own, used, columns = knobs_of_phases()[phase], USED[phase], _places(phase)
    first, index = _distinct([codes[place] for place in columns.tolist() if place in codes], len(values))
    few = np.ascontiguousarray(values[first][:, columns])
    return PhaseRows(
        own={name: few[:, place] for place, name in enumerate(own)},
        facts={name: few[:, len(own) + place] for place, name in enumerate(used)},
        index=index,
        keys=tuple(row.tobytes() for row in few),
    )


def _distinct(columns: Sequence[tuple[NDArray[np.int64], int]], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First place of each different row, and of each row which one it is; ``size`` rows."""
    if size == 0 or not columns:
        return np.zeros(min(size, 1), dtype=np.intp), np.zeros(size, dtype=np.intp)
    number, count = np.zeros(size, dtype=np.int64), 1
    for codes, several in columns:  # a row as one number: sorting whole rows takes many times as long
        if count * several > LARGEST:
            number = np.unique(number, return_inverse=True)[1].reshape(-1).astype(np.int64)
            count = int(number.max()) + 1
        number = number * several + codes
        count *= several
    _, first, index = np.unique(number, return_index=True, return_inverse=True)
    return first.astype(np.intp), index.reshape(-1).astype(np.intp)


@dataclass(frozen=True)
class _Group:
    """Configurations by what they say of some knobs."""

    told: tuple[Mapping[str, KnobValue], ...]
    """What there is to say of them."""
    index: NDArray[np.intp]
    """Of each configuration, its place in ``told``."""


def _group(names: tuple[str, ...], said: Mapping[str, Sequence[KnobValue | None]]) -> _Group:
    keys = list(zip(*(said[one] for one in names), strict=True))
    places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    told = tuple({n: v for n, v in zip(names, key, strict=True) if v is not None} for key in places)
    return _Group(told, np.fromiter(map(places.__getitem__, keys), dtype=np.intp, count=len(keys)))


def _column(
    name: str,
    said: Mapping[str, Sequence[KnobValue | None]],
    unset: Mapping[str, KnobValue],
    size: int,
    groups: dict[tuple[str, ...], _Group],
) -> Column:
    """Of a knob; ``said`` has each configuration's value of every knob that any of them sets.

    Knobs that depend on the same others, as most of an engine's do, share a group; new ones are added to ``groups``.
    """
    knob = KNOBS[name]
    names = tuple(one for one in (name, *knob.needs) if one in said)
    if not names:
        return np.full(size, _code(knob, {}, unset))
    if names not in groups:
        groups[names] = _group(names, said)
    group = groups[names]
    return np.array([_code(knob, row, unset) for row in group.told], dtype=np.float64)[group.index]


def _code(knob: Knob, row: Mapping[str, KnobValue], unset: Mapping[str, KnobValue]) -> float:
    for name, values in knob.needs.items():
        if row.get(name, unset.get(name)) not in values:
            return OFF
    value = row.get(knob.name, unset.get(knob.name))
    if value is None:
        return OFF
    if not is_number(knob.name):
        return coded(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return OFF
    return math.log2(max(float(value), 0.5 if knob.kind is Kind.INT else 1e-6))


@lru_cache(maxsize=4096)
def coded(value: KnobValue) -> float:
    """A choice as a number: the same in every process, exact in a float."""
    return float(zlib.crc32(f"{type(value).__name__}:{value}".encode()))


class FeatureCache:
    """What ``features`` reads of configurations, kept, so that a fit reads only new ones.

    Args:
        task: of the study; a configuration reads differently in another.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._places: dict[str, int] = {}
        self._values = read(task, ())

    def features(self, task: Task, configurations: Sequence[Configuration]) -> Features:
        """As ``features.features``; of another task nothing is kept."""
        if task is not self._task and task != self._task:
            return features(task, configurations)
        new = {c.key: c for c in configurations if c.key not in self._places}
        if new:
            self._values = np.concatenate([self._values, read(task, tuple(new.values()))])
            self._places.update(zip(new, range(len(self._places), len(self._values)), strict=True))
        return tabled(self._values[[self._places[c.key] for c in configurations]])
