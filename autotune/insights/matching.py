"""Which studies tell most about a machine and workload that was not tuned itself."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import SequenceMatcher

from autotune.domain import Study

OTHER_FRAMEWORK = 8.0
OTHER_DEVICE = 4.0
OTHER_MODEL = 3.0
"""For names that have nothing in common; less for those of one family."""


@dataclass(frozen=True)
class Wanted:
    """What is known of one's own training; ``None`` does not matter."""

    model: str | None = None
    """Folder or hub id; the last part counts."""
    framework: str | None = None
    device: str | None = None
    """``cpu``, or words of a GPU's name."""
    gpus: int | None = None
    rows_per_update: int | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True)
class Difference:
    """One thing in which a study is not what is wanted."""

    name: str
    wanted: str | int
    study: str | int | None
    distance: float
    """A factor of 2 in a number is 1."""


@dataclass(frozen=True)
class Match:
    """A study, and how far it is from what is wanted."""

    study: Study
    differences: tuple[Difference, ...]
    """Largest first."""

    @property
    def distance(self) -> float:
        """0 where nothing differs."""
        return sum(d.distance for d in self.differences)


def nearest(studies: Iterable[Study], wanted: Wanted) -> tuple[Match, ...]:
    """All ``studies``, nearest first; of equals the newest."""
    found = [Match(study, _differences(study, wanted)) for study in studies]
    return tuple(sorted(found, key=lambda m: (m.distance, -m.study.created_at, -m.study.id)))


def _differences(study: Study, wanted: Wanted) -> tuple[Difference, ...]:
    there = _of(study)
    found = []
    for each in fields(Wanted):
        own, other = getattr(wanted, each.name), there[each.name]
        if own is None:
            continue
        distance = _distance(each.name, own, other)
        if distance > 0:
            found.append(Difference(each.name, own, other, distance))
    return tuple(sorted(found, key=lambda d: (-d.distance, d.name)))


def _of(study: Study) -> dict[str, str | int | None]:
    spec = study.spec
    return {
        "model": spec.workload.model,
        "framework": spec.framework,
        "device": spec.resources.device,
        "gpus": spec.resources.gpus * spec.resources.nodes,
        "rows_per_update": spec.workload.rows_per_update,
        "max_prompt_tokens": spec.workload.max_prompt_length,
        "max_completion_tokens": spec.workload.max_completion_length,
        "memory_limit_bytes": spec.memory_limit,
    }


def _distance(name: str, own: str | int, other: str | int | None) -> float:
    if name == "model":
        return OTHER_MODEL * (1.0 - SequenceMatcher(None, _last_part(own), _last_part(other)).ratio())
    if name == "framework":
        return 0.0 if str(own).casefold() == str(other).casefold() else OTHER_FRAMEWORK
    if name == "device":
        return 0.0 if str(own).casefold() in str(other).casefold() else OTHER_DEVICE
    return _factor(own, other)


def _last_part(model: object) -> str:
    return str(model).rstrip("/").rsplit("/", 1)[-1].casefold()


def _factor(own: str | int, other: str | int | None) -> float:
    """Doublings between two amounts; none against some is as far as another device."""
    if own == other:
        return 0.0
    if not isinstance(own, int) or not isinstance(other, int) or own <= 0 or other <= 0:
        return OTHER_DEVICE
    return abs(math.log2(own / other))
