"""The memory model: how much a configuration nobody ran yet will need, and whether it fits."""

from __future__ import annotations

from autotune.proposals.memory.features import features, limits, pools
from autotune.proposals.memory.model import Breakdown, MemoryModel, breakdown
from autotune.proposals.memory.parts import MOMENTS, PARTS, PLACE, WHEN, Matrix, Moment, Part
