"""Logs of made-up runs, as verl prints them."""

from __future__ import annotations

import random
from collections.abc import Callable

GIB_AT_REST, GIB_A_TOKEN = 30.0, 0.01


def growing(
    steps: int,
    longest: Callable[[int], float],
    memory: Callable[[int, float], float] | None = lambda _, length: GIB_AT_REST + GIB_A_TOKEN * length,
    seconds: Callable[[int, float], float] = lambda _, length: 20.0 + 0.01 * length,
    seed: int = 0,
) -> list[str]:
    """Lines of a run by its longest completion, memory in GiB and seconds by step; each varies from step to step."""
    draw, lines, highest = random.Random(seed), [], 0.0
    for step in range(1, steps + 1):
        length = longest(step) * (1.0 + abs(draw.gauss(0.0, 0.08)))
        words = {
            "response_length/mean": 0.45 * longest(step) * (1.0 + draw.gauss(0.0, 0.03)),
            "response_length/max": length,
            "response_length/clip_ratio": 0.0,
            "timing_s/step": seconds(step, length) * (1.0 + draw.gauss(0.0, 0.02)),
        }
        if memory is not None:
            highest = max(highest, memory(step, length))
            words["perf/max_memory_allocated_gb"] = highest
        lines.append(f"step:{step} - {' - '.join(f'{name}:{value:.3f}' for name, value in words.items())}")
    return lines


def steps_until(limit: float, lines: list[str]) -> int:
    """The first step whose memory exceeds ``limit`` GiB."""
    return next(i for i, line in enumerate(lines, start=1) if float(line.rpartition(":")[2]) > limit)
