"""Start-up points of a track, before there is enough for a model to learn from; the same for every model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.translation import Evidence, Standing
from search_spaces.configuration import KnobValue

STARTUP_TRIALS = 6
"""Decided trials before a model is asked; until then draws are spread out, or around ``start``."""

SPREAD = 3
"""Uniform draws of which the one least like what was tried is taken: one alone often leaves a knob at one
value through a short study; many would go to the corners, which run out of memory first."""


def startup(
    lattice: Lattice,
    left: Mask,
    evidence: Sequence[Evidence],
    seed: int,
    start: Mapping[str, KnobValue] | None,
) -> int | None:
    """The choice while fewer than ``STARTUP_TRIALS`` trials are decided; ``None`` from then on.

    Args:
        lattice: the candidates.
        left: those that may be chosen; at least one.
        evidence: what is known, by trial number.
        seed: 32 bits, uniform.
        start: coordinates along some dimensions that are good elsewhere, to begin at.
    """
    if sum(e.standing is not Standing.PENDING for e in evidence) >= STARTUP_TRIALS:
        return None
    if start is None:
        return spread(lattice, left, evidence, seed)
    indices = np.flatnonzero(left)
    return lattice.nearest(lattice.moved(int(indices[seed % len(indices)]), start), left)


def spread(lattice: Lattice, left: Mask, evidence: Sequence[Evidence], seed: int) -> int:
    """Of ``SPREAD`` uniform draws from ``left``, the one least like what was tried."""
    points = [p for e in evidence if (p := lattice.point(e.configuration)) is not None]
    indices = np.flatnonzero(left)
    drawn = np.zeros_like(left)
    for turn in range(SPREAD):
        digest = hashlib.sha256(f"{seed}/{turn}".encode()).digest()
        drawn[indices[int.from_bytes(digest[:8], "big") % len(indices)]] = True
    return lattice.farthest(points, drawn, seed)
