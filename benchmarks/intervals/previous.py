"""The interval as it was before the components were estimated together, to be shown beside the new one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from autotune.domain import Configuration, CycleKind, CycleRecord, Gain, Trial
from autotune.statistics import evidence
from autotune.statistics.distributions import t95
from autotune.statistics.noise import Sample, fit_prior, pooled

SPREAD, GPU_SPREAD = 0.045, 0.13
TO_CYCLE = 1.5
DEGREES = 4


def gain(trials: Sequence[Trial], configuration: Configuration, over: Configuration) -> Gain | None:
    """Processes presumed to differ by a constant that counts four degrees, or 1.5 times the cycles' spread; Student's
    t of what the rounds of each configuration differ by beside it."""
    held = evidence.feasible(trials)
    runs = [trial for group in held.values() for trial in group]
    prior = fit_prior([Sample(0, _logs(trial)) for trial in runs])
    rounds = [[trial for trial in group if trial.pair is not None] for group in held.values()]
    here, there = ({t.pair: _speed(t) for t in held[one] if t.pair is not None} for one in (configuration, over))
    pairs = sorted(here.keys() & there.keys())
    if not pairs:
        return None
    recorded = GPU_SPREAD if any(trial.on_gpu for trial in runs) else SPREAD
    presumed = max(recorded**2, TO_CYCLE**2 * prior.variance)
    cycles = [_logs(trial) for group in rounds for trial in group]
    presumed += statistics.fmean(prior.moderated(Sample(0, logs)).variance / len(logs) for logs in cycles)
    shown = pooled([[_speed(trial) for trial in group] for group in rounds])
    degrees = DEGREES + shown.degrees
    variance = (DEGREES * presumed + shown.degrees * shown.variance) / degrees
    error = t95(int(degrees)) * math.sqrt(2.0 * variance / len(pairs))
    middle = statistics.fmean(here[pair] - there[pair] for pair in pairs)
    low, high = math.expm1(middle - error), math.expm1(middle + error)
    return Gain(math.expm1(middle), low, high, len(pairs), 0)


def _logs(trial: Trial) -> tuple[float, ...]:
    return tuple(math.log(3600.0 * c.completion_tokens / c.seconds) for c in _timed(trial))


def _speed(trial: Trial) -> float:
    """By every timed cycle, a warm-up among them too."""
    cycles = _timed(trial)
    return math.log(3600.0 * sum(c.completion_tokens for c in cycles) / sum(c.seconds for c in cycles))


def _timed(trial: Trial) -> list[CycleRecord]:
    return [c for c in trial.cycles if c.cycle_kind is CycleKind.RECORDED and c.accepted and c.rank == 0]
