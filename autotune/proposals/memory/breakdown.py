"""What a configuration's peak is made of, in bytes: from the model's facts alone, or with fitted coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.domain import Configuration, Pool
from autotune.proposals.forecasts import Task
from autotune.proposals.memory.features import features, pools
from autotune.proposals.memory.model import MemoryModel
from autotune.proposals.memory.parts import MOMENTS, PARTS, Moment, Part

GROUPS: Mapping[str, tuple[Part, ...]] = {
    "weights": (Part.WEIGHTS, Part.CASTS),
    "gradients": (Part.GRADIENTS, Part.BUCKETS),
    "optimizer": (Part.OPTIMIZER, Part.STEP),
    "activations": (Part.ACTIVATIONS, Part.SCORES),
    "logits": (Part.LOGITS,),
    "rollout": (Part.GENERATION, Part.ENGINE_WEIGHTS, Part.CACHE, Part.WORKSPACE, Part.RESIDUE),
    "weight sync": (Part.SYNC,),
    "offloaded": (Part.OFFLOADED,),
    "processes": (Part.FLOOR, Part.ENGINE_FLOOR, Part.WORKERS),
    "allocator": (Part.KEPT, Part.SLACK),
}
"""Parts as people ask for them; every part is in one group."""


@dataclass(frozen=True)
class Breakdown:
    """Of one pool: one GPU, or one machine's process tree."""

    pool: Pool
    moment: Moment
    """When the peak is."""
    peak: float
    """Bytes; the sum of ``at_peak``."""
    at_peak: Mapping[str, float]
    """Bytes by group (``GROUPS``) at that moment."""
    highest: Mapping[str, float]
    """Bytes by group, each at its own highest moment: generation and update do not add up."""
    by_moment: Mapping[str, float]
    """Bytes of the whole by moment."""


def breakdown(task: Task, configuration: Configuration, model: MemoryModel | None = None) -> tuple[Breakdown, ...]:
    """The parts of ``configuration``'s peak by pool, the device first where there is one.

    Args:
        task: with the facts of the model; what is not known of it is guessed.
        configuration: any.
        model: whose coefficients count; without one the formulas alone.
    """
    fitted = model if model is not None else MemoryModel.before(task)
    matrix = features(task, [configuration])
    found = []
    for pool, own, posterior in zip(pools(task), matrix, fitted.posteriors, strict=True):
        parts = own[0] * posterior.mean
        heights = (own @ posterior.mean)[0]  # as a forecast adds them up, to the last bit
        at = int(np.argmax(heights))
        places = {name: [PARTS.index(part) for part in members] for name, members in GROUPS.items()}
        found.append(
            Breakdown(
                pool=pool,
                moment=MOMENTS[at],
                peak=float(heights[at]),
                at_peak={name: float(parts[at, columns].sum()) for name, columns in places.items()},
                highest={name: float(parts[:, columns].sum(axis=1).max()) for name, columns in places.items()},
                by_moment={moment.value: float(height) for moment, height in zip(MOMENTS, heights, strict=True)},
            )
        )
    return tuple(found)
