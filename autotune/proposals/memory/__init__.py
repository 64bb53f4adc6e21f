"""The memory model: how much a configuration nobody ran yet will need, and whether it fits."""

from __future__ import annotations

from autotune.proposals.memory.breakdown import Breakdown, breakdown
from autotune.proposals.memory.carried import carried_over
from autotune.proposals.memory.features import Matrix, features, limits, pools
from autotune.proposals.memory.model import MemoryModel
from autotune.proposals.memory.parts import Moment, Part

__all__ = [
    "Breakdown",
    "Matrix",
    "MemoryModel",
    "Moment",
    "Part",
    "breakdown",
    "carried_over",
    "features",
    "limits",
    "pools",
]
