"""Noise of cycles within a process, and between processes of one configuration: assumed and estimated. Pure.

All speeds are logarithms of tokens/hour, one for each accepted cycle at recorded lengths. The variance of cycles is
pooled over the study (``fit_prior``); a trial's own variance is shrunk towards it: (d0 s0^2 + d s^2) / (d0 + d), Smyth,
Statistical Applications in Genetics and Molecular Biology 3(1), 2004.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autotune.domain import CycleRecord, Trial
from autotune.statistics.distributions import fit_variances

CYCLE_SPREAD = 0.03
"""Standard deviation of an undisturbed cycle's logarithm before the study has measured any."""
MEDIAN = math.pi / 2.0
"""Variance of the median of many normal values over that of their mean; an upper bound from three values on."""
PRESUMED_DEGREES = 4
"""Degrees of freedom that ``CYCLE_SPREAD`` counts as, in addition to the study's own."""
PROCESS_SPREAD = 0.045
"""Standard deviation between processes that forecasts presume: the median of the ten intervals first recorded in
benchmarks/tables/defaults-cpu.md. Intervals and the stopping rule presume ``PROCESS`` and ``GPU_PROCESS``."""
PROCESS_TO_CYCLE = 0.9
"""Least ratio of the standard deviation between processes to that between cycles: the geometric mean over the
recordings that ``benchmarks.intervals`` reads."""
LEAST_CYCLE_SPREAD = 0.002
"""Least standard deviation of cycles: cycles that agree better do so by chance."""
FITTED_FROM = 3
"""Trials with a variance of their own that are needed to fit the prior."""


@dataclass(frozen=True)
class Sample:
    """The undisturbed recorded cycles of one trial."""

    trial: int
    logs: tuple[float, ...]
    """Natural logarithms of tokens/hour, or of tokens per GPU-hour, by the study's objective."""
    cycles: tuple[CycleRecord, ...] = ()
    divisor: float = 1.0
    """Number of GPUs if the objective counts GPU-hours, else 1."""
    disturbed: int = 0
    """Number of disturbed cycles; they are not in ``logs`` and do not count for a look."""

    @cached_property
    def mean(self) -> float:
        return statistics.fmean(self.logs)

    @property
    def phases(self) -> list[dict[str, float]]:
        """Hours, or GPU-hours, per completion token by phase, for each cycle."""
        hours = [(c.phases, self.divisor / 3600.0 / c.completion_tokens) for c in self.cycles]
        return [{name: seconds * hour for name, seconds in phases.items()} for phases, hour in hours]

    @property
    def variance(self) -> float:
        """Variance between cycles; 0 for fewer than two."""
        return sum((log - self.mean) ** 2 for log in self.logs) / max(1, len(self.logs) - 1)


@dataclass(frozen=True)
class NoisePrior:
    """A variance of logarithms, with the degrees of freedom that it counts as."""

    variance: float
    degrees: float

    def moderated(self, sample: Sample) -> NoisePrior:
        """Returns the variance shrunk towards the prior, including the trial's own cycles."""
        own = max(0, len(sample.logs) - 1)
        degrees = self.degrees + own
        return NoisePrior((self.degrees * self.variance + own * sample.variance) / degrees, degrees)


PROCESS = NoisePrior(0.066**2, 8.0)
"""Variance between processes of one configuration beyond their cycles, on a CPU: scale and degrees of a scaled inverse
chi-squared distribution. The scale is a tenth above the likeliest for ten recordings, to cover the noisiest of them;
the degrees are few, because all were made on the same kind of machine (``benchmarks.intervals --fit``)."""
GPU_PROCESS = NoisePrior(0.105**2, 4.0)
"""Variance between processes of one configuration beyond their cycles, on a GPU: a tenth above the likeliest, with the
degrees of its two recordings of two configurations in two processes each."""


@dataclass(frozen=True)
class Run:
    """A process whose speed was measured."""

    configuration: Hashable
    moment: Hashable
    """Label of the time of the run: runs with the same one ran next to each other and share the machine's drift."""
    log: float
    """Natural logarithm of its tokens/hour."""
    variance: float
    """Variance of ``log`` that the noise of the run's cycles contributes."""


def sample_of(trial: Trial) -> Sample:
    """Returns the trial's undisturbed speed cycles; of a finished trial without any, the fastest disturbed one."""
    cycles = tuple(c for c in trial.speed_cycles() if c.completion_tokens and (trial.state.is_finished or not c.noisy))
    return Sample(
        trial=trial.number,
        logs=tuple(math.log(3600.0 * c.completion_tokens / c.seconds / trial.divisor) for c in cycles),
        cycles=cycles,
        divisor=trial.divisor,
        disturbed=sum(c.noisy for c in trial.timed_cycles()),
    )


def left_in_median(logs: Sequence[float], cycles: NoisePrior) -> NoisePrior:
    """Returns the variance of the median of cycles, from the study's noise of cycles and their own."""
    found = cycles.moderated(Sample(0, tuple(logs)))
    return NoisePrior((MEDIAN if len(logs) > 2 else 1.0) * found.variance / max(1, len(logs)), found.degrees)


def fit_prior(samples: Sequence[Sample]) -> NoisePrior:
    """Fits the prior of a cycle's variance to the study's trials: Smyth (2004), section 6.2 (limma's ``fitFDist``).

    With fewer than ``FITTED_FROM`` variances the prior is ``CYCLE_SPREAD`` with ``PRESUMED_DEGREES``, pooled with the
    measured ones. The fitted degrees never exceed those of all trials together.
    """
    shown = [(max(s.variance, LEAST_CYCLE_SPREAD**2), len(s.logs) - 1) for s in samples if len(s.logs) > 1]
    degrees = sum(d for _, d in shown)
    squares = sum(v * d for v, d in shown)
    if len(shown) < FITTED_FROM:
        counted = PRESUMED_DEGREES + degrees
        return NoisePrior((PRESUMED_DEGREES * CYCLE_SPREAD**2 + squares) / counted, counted)
    fitted = fit_variances([v for v, _ in shown], [d for _, d in shown])
    return NoisePrior(squares / degrees, degrees) if fitted is None else NoisePrior(fitted[0], min(fitted[1], degrees))


def recorded_process(*, on_gpu: bool) -> NoisePrior:
    """Returns the noise between processes in recorded studies on such a device; ``on_gpu`` as in ``Trial.on_gpu``."""
    return GPU_PROCESS if on_gpu else PROCESS


def presumed_process(cycles: NoisePrior, recorded: NoisePrior) -> NoisePrior:
    """Returns the assumed variance between processes of one configuration, before any configuration has run twice.

    Returns the recorded variance, raised if the study's cycles vary much. Cycles that agree well do not lower it.

    Args:
        cycles: result of ``fit_prior``.
        recorded: result of ``recorded_process``, or of earlier studies on the same machine.
    """
    return NoisePrior(max(recorded.variance, PROCESS_TO_CYCLE**2 * cycles.variance), recorded.degrees)
