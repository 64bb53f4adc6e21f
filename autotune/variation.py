"""How far cycles of one process, and processes of one configuration, scatter: presumed, and as a study has shown; pure.

Logarithms of tokens/hour throughout, one for each whole recorded-length cycle the clock guard let pass.

How far cycles of one process scatter is pooled over the study (``fit_prior``), by which a trial's own few cycles are
moderated: (d0 s0^2 + d s^2) / (d0 + d), Smyth, Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.distributions import digamma, inverse_trigamma, trigamma
from autotune.domain import CycleRecord, Trial

CYCLE_SPREAD = 0.03
"""Standard deviation of a cycle's logarithm while the study has shown none: the limit at which the clock guard takes a
drift for a disturbance (``Protocol.drift_limit``), so undisturbed cycles should differ less."""
PROCESS_SPREAD = 0.045
"""The same between processes of one configuration: the median of the ten intervals recorded in
benchmarks/tables/defaults-cpu.md, each 4.30 sd / sqrt(3) of the log ratio of two processes, is sd = 0.063."""
GPU_PROCESS_SPREAD = 0.13
"""The same on a GPU: of the two configurations that ran twice in the eager study of
benchmarks/tables/h100-studies-2026-11-22.md. All there is so far: two log ratios, 0.21 and 0.14, each of sd
sqrt(2) times a process's."""
PROCESS_TO_CYCLE = PROCESS_SPREAD / CYCLE_SPREAD
"""How many times as much processes are presumed to differ as clean cycles of one process do, at least: where cycles
scatter more than ``CYCLE_SPREAD``, something disturbs them that will disturb processes too."""
PRESUMED_DEGREES = 4
"""What each of these presumptions counts beside what the study has shown."""
LEAST_CYCLE_SPREAD = 0.002
"""Cycles that agree better than this do so by chance."""
FITTED_FROM = 3
"""Trials with a variance of their own before their scatter is fitted."""


@dataclass(frozen=True)
class Sample:
    """The clean recorded cycles of one trial."""

    trial: int
    logs: tuple[float, ...]
    """Natural logarithms of tokens/hour."""
    phases: tuple[Mapping[str, float], ...] = ()
    """Hours per completion token by phase, for each cycle."""
    disturbed: int = 0
    """Cycles kept although the guard objected; they are not among the others and do not count for a look."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.logs)

    @property
    def variance(self) -> float:
        """Between cycles; 0 for fewer than two."""
        return statistics.variance(self.logs) if len(self.logs) > 1 else 0.0


@dataclass(frozen=True)
class Prior:
    """A variance of logarithms, and what it counts beside what is measured further."""

    variance: float
    degrees: float

    def moderated(self, sample: Sample) -> Prior:
        """With the trial's own cycles counted in."""
        own = max(0, len(sample.logs) - 1)
        degrees = self.degrees + own
        return Prior((self.degrees * self.variance + own * sample.variance) / degrees, degrees)


def sample_of(trial: Trial) -> Sample:
    """The trial's clean speed cycles. Where the guard objected to all of them, a finished trial's count as they are."""
    cycles = [c for c in trial.speed_cycles() if c.completion_tokens > 0]
    clean = [c for c in cycles if not c.noisy]
    clean = cycles if not clean and trial.state.is_finished else clean
    return Sample(
        trial=trial.number,
        logs=tuple(_log(c) for c in clean),
        phases=tuple(_hours(c) for c in clean),
        disturbed=sum(c.noisy for c in cycles),
    )


def cycle_logs(trial: Trial) -> tuple[float, ...]:
    """Of all speed cycles, disturbed ones too."""
    return tuple(_log(c) for c in trial.speed_cycles() if c.completion_tokens > 0)


def _log(cycle: CycleRecord) -> float:
    return math.log(3600.0 * cycle.completion_tokens / cycle.seconds)


def _hours(cycle: CycleRecord) -> dict[str, float]:
    return {name: seconds / 3600.0 / cycle.completion_tokens for name, seconds in cycle.phases.items()}


def pooled(groups: Iterable[Sequence[float]]) -> Prior:
    """The variance within the groups, each around its own mean; 0, counting nothing, where none has two values."""
    squares, degrees = 0.0, 0
    for group in groups:
        if len(group) > 1:
            squares += statistics.variance(group) * (len(group) - 1)
            degrees += len(group) - 1
    return Prior(squares / degrees if degrees else 0.0, degrees)


def fit_prior(samples: Sequence[Sample]) -> Prior:
    """The prior of a cycle's variance from the study's trials: Smyth (2004), section 6.2 (limma's ``fitFDist``).

    With fewer than ``FITTED_FROM`` variances it is ``CYCLE_SPREAD``, counting ``PRESUMED_DEGREES``, pooled with what
    there is. The fitted degrees never exceed those of all trials together.
    """
    shown = [(max(s.variance, LEAST_CYCLE_SPREAD**2), len(s.logs) - 1) for s in samples if len(s.logs) > 1]
    degrees = sum(d for _, d in shown)
    squares = sum(v * d for v, d in shown)
    if len(shown) < FITTED_FROM:
        counted = PRESUMED_DEGREES + degrees
        return Prior((PRESUMED_DEGREES * CYCLE_SPREAD**2 + squares) / counted, counted)
    moved = [math.log(v) - digamma(d / 2) + math.log(d / 2) for v, d in shown]
    excess = statistics.variance(moved) - statistics.fmean(trigamma(d / 2) for _, d in shown)
    if excess <= 0.0:  # no more different than chance makes them: one variance for all
        return Prior(squares / degrees, degrees)
    half = inverse_trigamma(excess)
    return Prior(math.exp(statistics.fmean(moved) + digamma(half) - math.log(half)), min(2.0 * half, degrees))


def presumed_between(cycles: Prior, *, on_gpu: bool) -> float:
    """Variance between processes of one configuration until some have run more than once.

    As recorded on such a device, more where the study's cycles scatter much. Cycles that agree well make it no less: on
    the GPU that was recorded processes differed by far more than their cycles.

    Args:
        cycles: of ``fit_prior``.
        on_gpu: as of ``Trial.on_gpu``.
    """
    recorded = GPU_PROCESS_SPREAD if on_gpu else PROCESS_SPREAD
    return max(recorded**2, PROCESS_TO_CYCLE**2 * cycles.variance)


def between_processes(repeats: Sequence[Sequence[float]], presumed: float) -> Prior:
    """Variance between processes: the ``presumed`` one moderated by configurations that ran more than once.

    ``repeats``: for each configuration the logarithm of each process.
    """
    shown = pooled(repeats)
    degrees = PRESUMED_DEGREES + shown.degrees
    return Prior((PRESUMED_DEGREES * presumed + shown.degrees * shown.variance) / degrees, degrees)
