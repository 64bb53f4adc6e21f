"""Configurations spread all over a space, so that few of them tell something of all of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from search_spaces.configuration import KnobValue

Levels = NDArray[np.int64]


def spread(candidates: Sequence[Configuration], taken: Sequence[Configuration], count: int, seed: int) -> list[int]:
    """Places of ``count`` candidates all over the space; every beginning of the list is itself spread out.

    Greedy: each next one is far from those before it (in knobs that differ, as maximin designs have it) and has
    values that were seldom taken (as orthogonal arrays have them equally often). Candidates that are ``taken`` count
    as chosen, and are not chosen again.
    """
    names = searched(candidates)
    table = levels([*candidates, *taken], names)
    points, fixed = table[: len(candidates)], table[len(candidates) :]
    sizes = table.max(axis=0) + 1
    order = np.random.default_rng(seed).permutation(len(candidates))
    points = points[order]
    used = [np.zeros(size) for size in sizes]
    near = np.full(len(points), len(names), dtype=float)
    for point in fixed:
        near = np.minimum(near, (points != point).sum(axis=1))
        _count(used, point)
    chosen: list[int] = []
    while len(chosen) < min(count, len(points)) and near.max(initial=0) > 0:
        crowd = sum(use[points[:, k]] * sizes[k] for k, use in enumerate(used)) / (1 + len(chosen) + len(fixed))
        scores = np.where(near > 0, near - crowd, -np.inf)
        best = int(scores.argmax())
        chosen.append(int(order[best]))
        near = np.minimum(near, (points != points[best]).sum(axis=1))
        _count(used, points[best])
    return chosen


def searched(candidates: Sequence[Configuration]) -> list[str]:
    """Knobs in which candidates differ; the accumulation follows from the others."""
    values: dict[str, set[KnobValue | None]] = {}
    names = {name for candidate in candidates for name in candidate}
    for candidate in candidates:
        for name in names:
            values.setdefault(name, set()).add(candidate.get(name))
    return sorted(name for name, found in values.items() if len(found) > 1 and name != "gradient_accumulation_steps")


def levels(configurations: Sequence[Configuration], names: Sequence[str]) -> Levels:
    """A row for each configuration: the place of each knob's value among those that occur."""
    columns = []
    for name in names:
        places: dict[KnobValue | None, int] = {}
        columns.append([places.setdefault(c.get(name), len(places)) for c in configurations])
    return np.array(columns, dtype=np.int64).T.reshape(len(configurations), len(names))


def _count(used: Sequence[NDArray[np.float64]], point: Levels) -> None:
    for use, level in zip(used, point, strict=True):
        use[level] += 1
