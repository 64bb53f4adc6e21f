"""Steps: configurations that differ from the best one in a single knob, and the steps already taken. Pure. The base of
the next step is the latest configuration that improved on its predecessor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Phase
from autotune.proposals.candidate_grid import CandidateGrid, Dimension, Mask, Point
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Knob

PAYS = 0.03
"""Least gain in log tokens/hour that moves the base; a smaller one may be noise."""
NO_STAKE = 0.02
"""Cycle share of the phases that a knob acts on, up to which the knob cannot pay."""
ROWS = "micro_batch_size"
"""Knob that frees memory: a step that does not fit is tried with fewer rows."""
ENGINE, VLLM = "rollout_engine", "vllm"
TRAINERS = frozenset({ROWS, "attn_implementation"})
"""Knobs that, with vLLM, only affect the trainer: the engine generates with its own rows and kernels."""
EXPERT = (ENGINE, "gradient_checkpointing", ROWS, "logprob_rows", "attn_implementation")
"""Order in which an expert would go through the knobs; the others follow, those that need a restart last."""

Place = tuple[str, int]
"""A dimension's name, and the index of one of its values."""


@dataclass(frozen=True)
class Progress:
    """The base of the next step, and the values that earlier steps have tried."""

    base: Point
    place: int
    """Index of the base among the trials in ``seen``."""
    tried: frozenset[Place]


@dataclass(frozen=True)
class Step:
    """A candidate that differs from the base in one knob."""

    knob: str
    index: int
    """Index of the candidate in its grid."""


def progress(dimensions: Sequence[Dimension], seen: Sequence[tuple[Point, float | None]]) -> Progress | None:
    """Returns the progress after trials, in their order; ``None`` before one was feasible. ``seen``: point and log
    tokens/hour of each trial (``None`` if it failed or was stopped early)."""
    base: Point | None = None
    at, best = 0, 0.0
    tried: set[Place] = set()
    names = [d.name for d in dimensions]
    for place, (point, value) in enumerate(seen):
        pays = value is not None and (base is None or value > best + PAYS)
        here = zip(names, base or point, point, strict=True)
        changed = [(name, old, new) for name, old, new in here if old != new]
        moved = _leading([name for name, _, _ in changed])
        if len(moved) == 1 or (len(moved) == 2 and ROWS in moved):
            knob = next(name for name in moved if name != ROWS or len(moved) == 1)
            tried.update((name, to) for name, old, new in changed if name == knob for to in ((old, new)[not pays :]))
        if value is not None and pays:
            base, at, best = point, place, value
    return None if base is None else Progress(base, at, frozenset(tried))


def _leading(changed: Collection[str]) -> list[str]:
    """Returns the changed knobs, except knobs that merely follow another, as an engine's settings follow the engine."""
    return [n for n in changed if n not in KNOBS or not set(KNOBS[n].needs) & set(changed)]


def steps(grid: CandidateGrid, open_: Mask, here: Progress) -> list[Step]:
    """Lists steps in both directions from the base, or to any other value of a choice, within ``open_``."""
    found = []
    for axis, dimension in enumerate(grid.dimensions):
        for way in _ways(dimension, here.base[axis]):
            for place in way:
                if (dimension.name, place) in here.tried:
                    break
                exists, index = _there(grid, open_, here.base, axis, place)
                if index is not None:
                    found.append(Step(dimension.name, index))
                if exists:
                    break
    return found


def _ways(dimension: Dimension, own: int) -> list[Sequence[int]]:
    size = len(dimension.values)
    if dimension.ordered:
        return [range(own + 1, size), range(own - 1, -1, -1)]
    return [(place,) for place in range(size) if place != own]


def _there(grid: CandidateGrid, open_: Mask, base: Point, axis: int, place: int) -> tuple[bool, int | None]:
    """Tells whether a candidate has this value of dimension ``axis`` and otherwise equals ``base``; also returns the
    index of the nearest one in ``open_``: with other values of dependent knobs, or else with fewer rows."""
    name = grid.dimensions[axis].name
    free = {d.name for d in grid.dimensions if d.name in KNOBS and name in KNOBS[d.name].needs}
    point = (*base[:axis], place, *base[axis + 1 :])
    alike = grid.alike(point, free)
    able = alike & open_
    if not able.any() and name != ROWS:
        able = grid.alike(point, free | {ROWS}) & grid.below(ROWS, base) & open_
    return bool(alike.any()), grid.nearest(point, able) if able.any() else None


def stake(knob: Knob | None, of_phases: Mapping[str, float], engine: KnobValue | None = None) -> tuple[bool, float]:
    """Tells whether ``knob`` acts on the longest phase, and the cycle share of the phases it acts on (1 for a knob
    outside the catalogue, or without ``of_phases``). ``of_phases``: share of a cycle by phase."""
    if knob is None or not knob.phases or not of_phases:
        return True, 1.0
    acts = knob.phases - {Phase.GENERATE} if engine == VLLM and knob.name in TRAINERS else knob.phases
    longest = max(sorted(of_phases), key=lambda phase: of_phases[phase])
    return longest in acts, sum(of_phases.get(phase, 0.0) for phase in acts)


def expert_rank(name: str) -> int:
    """Returns the position of a knob in an expert's tuning order."""
    return EXPERT.index(name) if name in EXPERT else len(EXPERT)
