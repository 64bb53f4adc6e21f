"""The memory model: how much a configuration nobody ran yet will need, and whether it fits."""

from __future__ import annotations

from autotune.proposals.memory.features import Matrix, Moment, Part, features, limits, pools
from autotune.proposals.memory.model import Breakdown, MemoryModel, breakdown, carried_over
