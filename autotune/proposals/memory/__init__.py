"""The memory model: predicts the peak of untried configurations, and whether they fit."""

from __future__ import annotations

from autotune.proposals.memory.features import features, limits, pools
from autotune.proposals.memory.model import Breakdown, MemoryModel
from autotune.proposals.memory.parts import MOMENTS, PARTS, PLACE, WHEN, Matrix, Moment, Part
