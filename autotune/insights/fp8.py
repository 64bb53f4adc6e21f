"""Warnings shown next to figures of configurations that use FP8."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.domain import Configuration, Trial
from search_spaces.native import in_fp8


def caution(configuration: Configuration, framework: str) -> tuple[str, ...]:
    """Why passing trials with FP8 prove little; empty for a configuration without FP8."""
    knobs = in_fp8(configuration, framework)
    if not knobs:
        return ()
    return (
        f"FP8 ({', '.join(knobs)}) passed as not obviously broken, and no more: over a few updates nothing was NaN and "
        "log-probs and gradient lay within their limits; whether it learns as well was not measured.",
    )


def emulation(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Names the trials that emulated FP8; empty if none did."""
    ran = [t.number for t in trials if t.emulated and t.feasible]
    if not ran:
        return ()
    numbers = ", ".join(f"#{n}" for n in ran)
    return (f"FP8 was emulated in trials {numbers}: that they run is known, their speed is nobody's; none is ranked.",)
