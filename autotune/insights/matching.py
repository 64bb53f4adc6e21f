"""Ranks stored studies by the similarity of their machine and workload to an untuned training job."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import SequenceMatcher

from autotune.domain import Study
from autotune.wording.text import clean

OTHER_FRAMEWORK = 8.0
OTHER_DEVICE = 4.0
OTHER_MODEL = 3.0
"""Distance of two model names without a common part; similar names have less."""


@dataclass(frozen=True)
class TrainingProfile:
    """Machine and workload of the training job to compare with; fields that are ``None`` are not compared."""

    model: str | None = None
    """Folder or hub id of the model; its last part is compared."""
    params_b: float | None = None
    """Parameters of the model in billions."""
    framework: str | None = None
    gpu: str | None = None
    """``cpu``, or a part of a GPU's name."""
    gpus: int | None = None
    rows_per_update: int | None = None
    max_prompt_tokens: int | None = None
    max_completion_tokens: int | None = None


@dataclass(frozen=True)
class Difference:
    """One field in which a study differs from the compared training job."""

    name: str
    target: str | int | float
    study: str | int | float | None
    distance: float
    """Distance in doublings: a factor of 2 in a number is 1."""

    def sentence(self) -> str:
        """Describes the difference: ``gpus 1 instead of 8: 3 doublings``."""
        if self.study is None:
            return f"{self.name} is not known of this study"
        apart = f"{self.distance:.2g} doubling{'' if self.distance == 1 else 's'}"
        numbers = not isinstance(self.target, str) and not isinstance(self.study, str) and self.target and self.study
        return f"{self.name} {_words_of(self.study)} instead of {_words_of(self.target)}" + (
            f": {apart}" if numbers else ""
        )


@dataclass(frozen=True)
class Match:
    """A study with its distance from the compared training job."""

    study: Study
    differences: tuple[Difference, ...]
    """Differences, largest first."""

    @property
    def distance(self) -> float:
        """Sum of the differences in doublings; 0 if nothing differs."""
        return sum(d.distance for d in self.differences)

    @property
    def is_far(self) -> bool:
        """True if the study has another kind of device, or a model more than a factor of two larger or smaller."""
        return any(d.name == "gpu" or (d.name == "params_b" and d.distance > 1.0) for d in self.differences)


def nearest_studies(
    studies: Iterable[Study], query: TrainingProfile, gpu_names: Mapping[int, str] | None = None
) -> tuple[Match, ...]:
    """Sorts all ``studies`` by distance, nearest first; among equals newest first.

    Args:
        query: the training job to compare with; fields that are ``None`` are not compared.
        gpu_names: study id -> GPU name, from fingerprints; without one only the kind of device is compared.
    """
    names = gpu_names or {}
    found = [Match(study, _differences(study, query, names.get(study.id, ""))) for study in studies]
    return tuple(sorted(found, key=lambda m: (m.distance, -m.study.created_at, -m.study.id)))


def _differences(study: Study, query: TrainingProfile, gpu_name: str) -> tuple[Difference, ...]:
    there = _of(study, gpu_name)
    found = []
    for each in fields(TrainingProfile):
        own, other = getattr(query, each.name), there[each.name]
        if own is None:
            continue
        distance = _distance(each.name, own, other)
        if distance > 0:
            found.append(Difference(each.name, own, other, distance))
    return tuple(sorted(found, key=lambda d: (-d.distance, d.name)))


def _of(study: Study, gpu_name: str) -> dict[str, str | int | float | None]:
    spec = study.spec
    parameters = spec.resources.model.parameters
    return {
        "model": spec.workload.model,
        "params_b": None if parameters is None else parameters / 1e9,
        "framework": spec.framework,
        "gpu": gpu_name or spec.resources.device,
        "gpus": spec.resources.total_gpus,
        "rows_per_update": spec.workload.rows_per_update,
        "max_prompt_tokens": spec.workload.max_prompt_length,
        "max_completion_tokens": spec.workload.max_completion_length,
    }


def _distance(name: str, own: str | int | float, other: str | int | float | None) -> float:
    if name == "model":
        return OTHER_MODEL * (1.0 - SequenceMatcher(None, _last_part(own), _last_part(other)).ratio())
    if name == "framework":
        return 0.0 if str(own).casefold() == str(other).casefold() else OTHER_FRAMEWORK
    if name == "gpu":
        return 0.0 if str(own).casefold() in str(other).casefold() else OTHER_DEVICE
    if name == "params_b":
        return round(_factor(own, other), 1)  # a model of 0.5 billion parameters has 0.494
    return _factor(own, other)


def _last_part(model: object) -> str:
    return str(model).rstrip("/").rsplit("/", 1)[-1].casefold()


def _factor(own: str | int | float, other: str | int | float | None) -> float:
    """Returns the doublings between two amounts; ``OTHER_DEVICE`` if only one of them is zero."""
    if own == other:
        return 0.0
    if isinstance(own, str) or isinstance(other, str) or other is None or own <= 0 or other <= 0:
        return OTHER_DEVICE
    return abs(math.log2(own / other))


def _words_of(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else clean(value)
