"""Ranks earlier studies that a new study can start from, by the distance their figures must be extrapolated. Pure.

Distance is in doublings of the quantities that time and memory scale with: parameters, GPUs, rows, lengths, memory.
Names do not count: a renamed fine-tuned copy runs like its original, and two sizes of one family do not run alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import PriorKnowledge, Study, StudySpec
from autotune.insights.matching import Match, TrainingProfile, nearest_studies
from autotune.wording.numbers import counted
from search_spaces.own_keys import is_lora

FARTHEST = 8.0
"""Sum of doublings beyond which a formula predicts better than another study's figures."""
OTHER_TRAINING = 2.0
"""Distance, in doublings, between training all weights and training adapters."""
OTHER_GPU = 1.0
"""Distance of another compute capability, in doublings, added to the distance of memory size."""


@dataclass(frozen=True)
class Related:
    """An earlier study with its differences from the new one."""

    study: Study
    distance: float
    """Distance in doublings; 0 for the same work on the same machine in another search."""
    sentence: str


def related(studies: Iterable[Study], spec: StudySpec) -> tuple[Related, ...]:
    """Returns the studies whose trials can inform ``spec``, nearest first; among equals the newest. Studies of another
    framework or kind of device, and the study itself, are omitted."""
    alike = (
        s for s in studies if (s.spec.framework, s.spec.resources.device) == (spec.framework, spec.resources.device)
    )
    own = [s for s in alike if s.spec.digest != spec.digest]
    found = [_related(match, spec) for match in nearest_studies(own, _profile_of(spec))]
    near = [r for r in found if r.distance <= FARTHEST]
    return tuple(sorted(near, key=lambda r: (r.distance, -r.study.created_at, -r.study.id)))


def began_words(knowledge: PriorKnowledge | None) -> tuple[str, ...]:
    """Describes each earlier study: ``23 trials of study 'small': 4 cores instead of 2 (1.0 doublings away)``."""
    earlier = () if knowledge is None else knowledge.earlier
    return tuple(f"{counted(len(e.trials), 'trial')} of {e.sentence}" for e in earlier)


def _profile_of(spec: StudySpec) -> TrainingProfile:
    return TrainingProfile(
        gpus=spec.resources.total_gpus or None,
        rows_per_update=spec.workload.rows_per_update,
        max_prompt_tokens=spec.workload.max_prompt_length or None,
        max_completion_tokens=spec.workload.max_completion_length,
    )


def _related(match: Match, spec: StudySpec) -> Related:
    there, here = match.study.spec, spec
    differs = [(f"{d.name.replace('_', ' ')} {d.study} instead of {d.target}", d.distance) for d in match.differences]
    differs += _models(there, here) + _devices(there, here)
    if len({is_lora(spec.workload.passthrough, spec.framework) for spec in (there, here)}) > 1:
        differs.append(("adapters on one side, all weights on the other", OTHER_TRAINING))
    distance = sum(far for _, far in differs)
    said = "; ".join(text for text, far in sorted(differs, key=lambda d: (-d[1], d[0])))
    same = "the same model, machine and load" if not differs else said
    return Related(match.study, distance, f"study {there.name!r}: {same} ({distance:.1f} doublings away)")


def _models(there: StudySpec, here: StudySpec) -> list[tuple[str, float]]:
    """Returns the difference of two models in doublings of parameters; ``FARTHEST`` if a count is not known."""
    if there.workload.model_sha256 and there.workload.model_sha256 == here.workload.model_sha256:
        return []
    before, after = there.resources.model.parameters, here.resources.model.parameters
    if not before or not after:
        return [("a model of which the size is not known", FARTHEST)]
    far = abs(math.log2(after / before))
    return [(f"{before:,} parameters instead of {after:,}", far)] if far else []


def _devices(there: StudySpec, here: StudySpec) -> list[tuple[str, float]]:
    """Returns the differences of two devices: memory and compute capability of a GPU, cores of a CPU."""
    if here.resources.device == "cpu":
        before, after = there.resources.cpu_cores, here.resources.cpu_cores
        far = abs(math.log2(max(1, after) / max(1, before)))
        return [(f"{before} cores instead of {after}", far)] if far else []
    found: list[tuple[str, float]] = []
    old, new = there.resources.device_memory, here.resources.device_memory
    if old and new and (far := abs(math.log2(new / old))) > 0:
        found.append(("a GPU of other memory", far))
    if there.resources.compute_capability != here.resources.compute_capability:
        found.append(("a GPU of another compute capability", OTHER_GPU))
    return found
