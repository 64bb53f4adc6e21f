"""The samplers, by the name a user gives: ``tpe``, ``gp``, ``cmaes``, ``random``, ``grid``."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.proposals.samplers.base import Sampler
from autotune.proposals.samplers.cmaes import CmaesSampler
from autotune.proposals.samplers.gp import GpSampler
from autotune.proposals.samplers.grid_search import GridSampler
from autotune.proposals.samplers.random_search import RandomSampler
from autotune.proposals.samplers.tpe import TpeSampler

_ALL: tuple[Sampler, ...] = (TpeSampler(), GpSampler(), CmaesSampler(), RandomSampler(), GridSampler())

SAMPLERS: Mapping[str, Sampler] = {s.name: s for s in _ALL}

__all__ = ["SAMPLERS", "Sampler"]
