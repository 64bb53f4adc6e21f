"""Models, GPUs and lengths of completions that the worlds are made of."""

from __future__ import annotations

import random

from benchmarks.worlds.physics import GB, Chip, Model

A100 = Chip("A100 80GB", 312e12, 2.0e12, 85.1 * GB, (8, 0), fp32=19.5 / 312, link=240 * GB)
H100 = Chip("H100 80GB", 990e12, 3.35e12, 85.5 * GB, (9, 0), fp8=2.0, fp32=67 / 990, link=360 * GB, host_link=50 * GB)
A10 = Chip("A10", 125e12, 0.6e12, 24.1 * GB, (8, 6), fp32=31 / 125)
L40S = Chip("L40S", 362e12, 0.86e12, 48.3 * GB, (8, 9), fp8=2.0, fp32=91 / 362)


HALF, ONE_AND_HALF = Model(0.494e9, 24, 896, 14, 2), Model(1.544e9, 28, 1536, 12, 2)
THREE, SEVEN = Model(3.086e9, 36, 2048, 16, 2), Model(7.616e9, 28, 3584, 28, 4)


def spread(rows: int, shortest: int, longest: int, mean: float, seed: int = 0) -> tuple[int, ...]:
    """Lengths between two bounds, lognormal around ``mean`` with a heavy end at the longest."""
    chance = random.Random(f"lengths/{seed}")  # noqa: S311 - a repeatable draw is the point
    drawn = (chance.lognormvariate(0.0, 0.55) * mean for _ in range(rows))
    return tuple(int(min(longest, max(shortest, x))) for x in drawn)
