"""The samplers, by the name a user gives: ``tpe``, ``grey``, ``gp``, ``cmaes``, ``random``, ``grid``."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.proposals.samplers.base import ReadingSampler, Sampler, for_task, may_fit
from autotune.proposals.samplers.cmaes import CmaesSampler
from autotune.proposals.samplers.gp import GpSampler
from autotune.proposals.samplers.grey import GreySampler
from autotune.proposals.samplers.grid_search import GridSampler
from autotune.proposals.samplers.random_search import RandomSampler
from autotune.proposals.samplers.tpe import TpeSampler

_ALL: tuple[Sampler, ...] = (TpeSampler(), GreySampler(), GpSampler(), CmaesSampler(), RandomSampler(), GridSampler())

SAMPLERS: Mapping[str, Sampler] = {s.name: s for s in _ALL}

__all__ = ["SAMPLERS", "ReadingSampler", "Sampler", "for_task", "forecasts", "may_fit"]


def forecasts(name: str) -> bool:
    """Whether the sampler of that name has models, which can know something before the first trial."""
    return isinstance(SAMPLERS.get(name), ReadingSampler)
