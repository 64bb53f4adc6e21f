"""The samplers, by the name a user gives: ``grey``, ``tpe``, ``random``, ``grid``, or ``module:Class``."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import UsageError
from autotune.proposals.samplers.base import CandidateSampler, Field, StudySampler, Turn
from autotune.proposals.samplers.grey import GreySampler
from autotune.proposals.samplers.plain import GRID, RANDOM, TpeSampler, own_sampler

_ALL: tuple[StudySampler, ...] = (TpeSampler(), GreySampler(), RANDOM, GRID)

SAMPLERS: Mapping[str, StudySampler] = {s.name: s for s in _ALL}


def named_sampler(name: str) -> StudySampler:
    """Returns the sampler of that name. Raises ``UsageError`` if there is none, or the user's own cannot be used."""
    if ":" in name:
        return own_sampler(name)
    if name not in SAMPLERS:
        names = ", ".join(sorted(SAMPLERS))
        raise UsageError(f"unknown sampler {name!r}; choose one of: {names}, or module:Class for one of your own")
    return SAMPLERS[name]


def forecasts(name: str) -> bool:
    """Tells whether the sampler of that name has models, which can predict before the first trial."""
    return name == GreySampler.name
