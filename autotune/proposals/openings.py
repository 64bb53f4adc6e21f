"""First trials of a study, before a model is asked: strong defaults, then without memory savers, spread-out points."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autotune.domain import Configuration
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.translation import Observation, OptunaTrialStatus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS

COMPETENT = "competent"
ROOMY = "roomy"
"""Sources of the openings."""

WITHOUT_SAVING: Mapping[str, KnobValue] = {
    "gradient_checkpointing": False,
    "activation_offload": False,
    "offload_optimizer": "none",
    "offload_parameters": "none",
    "host_allocator": "keep",
}
"""Knobs that trade time for memory, each at its value that saves none."""

ENGINE, VLLM = "rollout_engine", "vllm"


def openings(
    candidates: Sequence[Configuration],
    baseline: Configuration,
    near: Callable[[Configuration], Sequence[Configuration]] | None = None,
) -> tuple[tuple[Configuration, str], ...]:
    """Configurations to try first, each with its source.

    Args:
        near: tells the neighbours of a configuration, where ``candidates`` are the baseline's neighbours alone.
    """
    known = strong_defaults(candidates, baseline)
    around = candidates if known is None or near is None else near(known)
    ample = without_memory_savers(around, known or baseline)
    return tuple((c, source) for c, source in ((known, COMPETENT), (ample, ROOMY)) if c is not None)


def strong_defaults(candidates: Sequence[Configuration], baseline: Configuration) -> Configuration | None:
    """Settings that an expert would try first: colocated vLLM, all else as in the baseline.

    Of several such candidates the one with the fewest engine settings of its own, the largest cache, the first.
    ``None`` if there is none, or the baseline generates with vLLM itself.
    """
    if baseline.get(ENGINE) == VLLM:
        return None
    own = {name for name, knob in KNOBS.items() if ENGINE in knob.needs}
    found = [c for c in candidates if c.get(ENGINE) == VLLM and set(c.difference(baseline)) <= own | {ENGINE}]
    return min(found, key=lambda c: (len(c.difference(baseline)), -_number(c, "kv_cache_memory_bytes")), default=None)


def without_memory_savers(candidates: Sequence[Configuration], start: Configuration) -> Configuration | None:
    """``start`` without what saves memory at the cost of time, as far as the space has it.

    Where it fits it is mostly the faster one, and where it does not its failure rules out the most.
    ``None`` if that is ``start`` itself.
    """
    found = [c for c in candidates if set(c.difference(start)) <= set(WITHOUT_SAVING)]
    best = max([start, *found], key=lambda c: sum(c.get(name) == value for name, value in WITHOUT_SAVING.items()))
    return None if best == start else best


def _number(configuration: Configuration, name: str) -> float:
    value = configuration.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


STARTUP_TRIALS = 6
"""Decided trials before a model is asked; until then draws are spread out, or around ``start``."""

SPREAD = 3
"""Uniform draws of which the one least like what was tried is taken: one alone often leaves a knob at one
value through a short study; many would go to the corners, which run out of memory first."""


def startup(
    grid: CandidateGrid,
    left: Mask,
    evidence: Sequence[Observation],
    seed: int,
    start: Mapping[str, KnobValue] | None,
) -> int | None:
    """The choice while fewer than ``STARTUP_TRIALS`` trials are decided; ``None`` from then on.

    Args:
        left: those that may be chosen; at least one.
        evidence: what is known, by trial number.
        seed: 32 bits, uniform.
        start: coordinates along some dimensions that are good elsewhere, to begin at.
    """
    if sum(e.standing is not OptunaTrialStatus.PENDING for e in evidence) >= STARTUP_TRIALS:
        return None
    if start is None:
        return spread(grid, left, evidence, seed)
    indices = np.flatnonzero(left)
    return grid.nearest(grid.moved(int(indices[seed % len(indices)]), start), left)


def spread(grid: CandidateGrid, left: Mask, evidence: Sequence[Observation], seed: int) -> int:
    """The draw least similar to tried configurations, of ``SPREAD`` uniform draws from ``left``."""
    points = [p for e in evidence if (p := grid.point(e.configuration)) is not None]
    indices = np.flatnonzero(left)
    drawn = np.zeros_like(left)
    for turn in range(SPREAD):
        digest = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
        drawn[indices[int.from_bytes(digest[:8], "big") % len(indices)]] = True
    return grid.farthest(points, drawn, seed)
