"""A table's rows in an order that spares restarts: which configurations are recorded, and which comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from autotune.domain import SWEEP, Configuration, FailureReason, Resources, Trial
from autotune.proposals.translation import is_taken
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RestartKey, preload_key, restart_key
from search_spaces.space import SearchSpace

BROKEN = 2
"""Trials of one row that the machine broke, each repeated once itself, before the row is recorded as broken."""


@dataclass(frozen=True)
class SweepProposer:
    """``ports.Proposer``: the rows of a table one after the other, whatever was measured.

    ``rows`` counts the baseline, which is trial 0; ``None`` is every legal combination. Fewer lie all over the space,
    and are among those of a larger number. ``same_learning``: only rows that learn as the baseline does.
    """

    space: SearchSpace
    baseline: Configuration
    resources: Resources
    _: KW_ONLY
    rows: int | None
    same_learning: bool
    seed: int

    @cached_property
    def legal(self) -> tuple[Configuration, ...]:
        """Candidates for a row, with the baseline written as they are."""
        found = self.space.candidates(self.baseline, self.resources, same_learning=self.same_learning, seed=self.seed)
        return found if self._complete in found else (self._complete, *found)

    @cached_property
    def planned(self) -> tuple[Configuration, ...]:
        """The rows in the order in which they are run, but for the baseline, which is run first."""
        others = [c for c in self.legal if c != self._complete]
        if self.rows is None or self.rows > len(others):
            # not as they were enumerated, the first knob slowest: see ``ordered``
            chosen = [others[i] for i in np.random.default_rng(self.seed).permutation(len(others))]
        else:
            chosen = [others[i] for i in spread(others, [self._complete], self.rows - 1, self.seed)]
        return ordered(chosen, self._complete, self.resources.framework, self.resources.device)

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:  # noqa: ARG002
        return next(((row, SWEEP) for row in self._still(history)), None)

    def left(self, history: Sequence[Trial]) -> int:
        """Number of rows still to be run, without the baseline."""
        return sum(1 for _ in self._still(history))

    def _still(self, history: Sequence[Trial]) -> Iterator[Configuration]:
        had = {t.configuration.key for t in history if is_taken(t)} | _broken(history)
        return (c for c in self.planned if c.key not in had)

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:  # noqa: ARG002
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:  # noqa: ARG002
        return 0

    @cached_property
    def _complete(self) -> Configuration:
        return self.space.complete(self.baseline, self.resources)


def ordered(
    configurations: Sequence[Configuration], first: Configuration, framework: str, device: str
) -> tuple[Configuration, ...]:
    """Sorts ``configurations`` so that those one process can run are neighbours, and so are processes that differ in
    the rollout engine alone, from those of ``first`` on. On a CPU only those forked from one parent are put together: a
    drift of the machine would be taken for the effect of any other order. Equals keep their order."""
    if device == "cpu":
        parents = _places(configurations, first, partial(preload_key, framework=framework))
        return tuple(sorted(configurations, key=parents))
    processes = _places(configurations, first, partial(restart_key, above=Restart.ENGINE, framework=framework))
    workers = _places(configurations, first, partial(restart_key, above=Restart.NONE, framework=framework))
    return tuple(sorted(configurations, key=lambda configuration: (processes(configuration), workers(configuration))))


def _places(
    configurations: Sequence[Configuration], first: Configuration, key_of: Callable[[Configuration], RestartKey]
) -> Callable[[Configuration], int]:
    """Rank of each configuration's restart key: that of ``first`` leads, the others in order of appearance."""
    keys: Mapping[RestartKey, int] = {
        key: place for place, key in enumerate(dict.fromkeys(key_of(c) for c in (first, *configurations)))
    }
    return lambda configuration: keys[key_of(configuration)]


def _broken(history: Sequence[Trial]) -> set[str]:
    """Keys of rows the machine broke so often that they are not tried again."""
    counted = Counter(
        t.configuration.key
        for t in history
        if t.kind.is_searched and t.outcome is not None and t.outcome.reason is FailureReason.INFRA
    )
    return {key for key, times in counted.items() if times >= BROKEN}


Levels = NDArray[np.int64]


def spread(candidates: Sequence[Configuration], taken: Sequence[Configuration], count: int, seed: int) -> list[int]:
    """Returns places of ``count`` candidates all over the space; every beginning of the list is itself spread out.
    Greedy: each next one is far from those before and from ``taken`` (maximin designs) and has values seldom taken
    (orthogonal arrays)."""
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
