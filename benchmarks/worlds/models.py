"""Models, GPUs and lengths of completions that the worlds are made of."""

from __future__ import annotations

import random

from benchmarks.worlds.physics import GB, Chip
from search_spaces.configuration import ModelFacts

A100 = Chip("A100 80GB", 312e12, 2.0e12, 85.1 * GB, (8, 0), fp32=19.5 / 312, link=240 * GB)
H100 = Chip("H100 80GB", 990e12, 3.35e12, 85.5 * GB, (9, 0), fp8=2.0, fp32=67 / 990, link=360 * GB, host_link=50 * GB)
A10 = Chip("A10", 125e12, 0.6e12, 24.1 * GB, (8, 6), fp32=31 / 125)
L40S = Chip("L40S", 362e12, 0.86e12, 48.3 * GB, (8, 9), fp8=2.0, fp32=91 / 362)


def model(billions: float, layers: int, width: int, heads: int, key_value: int) -> ModelFacts:
    """A model with the vocabulary of Qwen2.5."""
    return ModelFacts(
        parameters=int(billions * 1e9), layers=layers, hidden_size=width, attention_heads=heads,
        key_value_heads=key_value, vocabulary=151_936, max_positions=32_768,
    )  # fmt: skip


HALF, ONE_AND_HALF = model(0.494, 24, 896, 14, 2), model(1.544, 28, 1536, 12, 2)
THREE, SEVEN = model(3.086, 36, 2048, 16, 2), model(7.616, 28, 3584, 28, 4)


def spread(rows: int, shortest: int, longest: int, mean: float, seed: int = 0) -> tuple[int, ...]:
    """Lengths between two bounds, lognormal around ``mean`` with a heavy end at the longest."""
    chance = random.Random(f"lengths/{seed}")  # noqa: S311 - a repeatable draw is the point
    drawn = (chance.lognormvariate(0.0, 0.55) * mean for _ in range(rows))
    return tuple(int(min(longest, max(shortest, x))) for x in drawn)
