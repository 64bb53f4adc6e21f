"""The samplers, by the name a user gives: ``tpe``, ``random``, ``grid``."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.proposals.samplers.base import Sampler
from autotune.proposals.samplers.grid_search import GridSampler
from autotune.proposals.samplers.random_search import RandomSampler
from autotune.proposals.samplers.tpe import TpeSampler

SAMPLERS: Mapping[str, Sampler] = {s.name: s for s in (TpeSampler(), RandomSampler(), GridSampler())}

__all__ = ["SAMPLERS", "Sampler"]
