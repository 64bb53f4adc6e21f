"""Decides when a search trial has been measured enough, and when it can no longer win. Pure.

All speeds are logarithms of tokens/hour; ``statistics.noise`` estimates their noise. See
docs/decisions/0021-when-to-stop-measuring.md.

* Interim looks are after ``LOOKS`` cycles. Each spends a part of ``ALPHA`` once (``spent_by``: Lan and DeMets,
Biometrika 70, 1983, their Pocock-like function), so that by Bonferroni's inequality all looks together err no more
  often than ``ALPHA``.
* Before the first look only the trial's phase times can stop it (``physical_limit``).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain import Ceiling, Protocol
from autotune.statistics.distributions import student_quantile
from autotune.statistics.noise import NoisePrior, Sample, fit_prior, presumed_process, recorded_process

LOOKS = (3, 5, 8)
"""Numbers of undisturbed recorded cycles at which a trial is judged; the last is the most it has."""
ALPHA = 0.01
"""Probability, over all looks, of stopping a trial that is as fast as the best because of its own noise; the noise of
its rivals adds at most as much again."""

COULD_STILL: Mapping[int, float] = {1: 0.5, 2: 0.7}
"""Cycles measured -> share of a phase's shortest time that later cycles may still reach. A margin, not a measurement:
the first batch of a new shape may cost more than any later one."""
LEAST_MARGIN = 0.8
"""Share of the shortest time of a phase, over all trials of the study, that counts as its physical minimum."""


class Verdict(StrEnum):
    """Decision on a running trial."""

    GO_ON = "go on"
    ENOUGH = "enough"
    """The trial is decided, or more cycles would not decide it; if it leads, interleaved confirmation decides."""
    LOSES = "loses"
    """The trial's upper bound lies below the lower bound of its best rival."""


@dataclass(frozen=True)
class Rival:
    """Best competitor of a trial, in logarithms of tokens/hour."""

    trial: int
    low: float
    """Highest of the lower bounds of all rivals."""
    high: float
    """Highest of the upper bounds of all rivals."""


@dataclass(frozen=True)
class Known:
    """Data that a running trial is compared with."""

    prior: NoisePrior
    between: float
    """Variance between processes, beyond the noise of their cycles."""
    rival: Rival | None
    least: Mapping[str, float]
    """Physical minimum of each phase, in hours per completion token."""


@dataclass(frozen=True)
class Decision:
    """A verdict and, if the trial loses, its bound."""

    verdict: Verdict
    ceiling: Ceiling | None = None


GO_ON, ENOUGH = Decision(Verdict.GO_ON), Decision(Verdict.ENOUGH)


def with_looks(protocol: Protocol) -> Protocol:
    """Returns ``protocol`` with interim looks if its number of recorded cycles is the default, else unchanged."""
    return replace(protocol, recorded=LOOKS[-1], looks=LOOKS) if protocol.recorded == LOOKS[0] else protocol


def spent_by(share: float, alpha: float = ALPHA) -> float:
    """Returns the part of ``alpha`` spent after ``share`` (0..1) of the cycles: alpha ln(1 + (e - 1) share).

    Lan and DeMets (1983), the function that resembles Pocock's boundaries. O'Brien and Fleming's keeps nearly all for
    the last look; here most noise is between processes, which more cycles do not reduce, so waiting gains little.
    """
    return alpha * math.log1p((math.e - 1.0) * share)


@functools.cache
def spends(look: int) -> float:
    """Returns the part of ``ALPHA`` that the look after ``LOOKS[look]`` cycles spends."""
    before = spent_by(LOOKS[look - 1] / LOOKS[-1]) if look else 0.0
    return spent_by(LOOKS[look] / LOOKS[-1]) - before


def weigh(
    samples: Sequence[Sample],
    rivals: Sequence[Sequence[Sample]],
    between: float | None = None,
    *,
    on_gpu: bool,
) -> Known:
    """Collects the data that a running trial is compared with.

    Args:
        samples: samples of every measured trial of the study.
        rivals: runs of each configuration that the trial competes with.
        between: variance between processes of one configuration beyond their cycles, from the study's repeats
            (``evidence.process_noise``); ``None``: an assumed one.
        on_gpu: as in ``recorded_process``.
    """
    prior = fit_prior(samples)
    between = presumed_process(prior, recorded_process(on_gpu=on_gpu)).variance if between is None else between
    found = [_rival(runs, prior, between, len(rivals)) for runs in rivals]
    best = max(found, key=lambda r: r.low, default=None)
    if best is not None:
        best = replace(best, high=max(r.high for r in found))
    return Known(prior, between, best, _least(samples))


def _rival(runs: Sequence[Sample], prior: NoisePrior, between: float, count: int) -> Rival:
    """Returns the bounds of one configuration. All ``count`` rivals share ``ALPHA``: the best of them is tested."""
    spread = prior.moderated(max(runs, key=lambda s: len(s.logs)))
    variance = statistics.fmean(between + spread.variance / len(s.logs) for s in runs) / len(runs)
    error = _quantile(ALPHA / count, spread.degrees) * math.sqrt(variance)
    middle = statistics.fmean(s.mean for s in runs)
    return Rival(runs[0].trial, middle - error, middle + error)


def _least(samples: Sequence[Sample]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for sample in samples:
        for cycle in sample.phases:
            for name, hours in cycle.items():
                if hours > 0.0:
                    found[name] = min(hours, found.get(name, math.inf))
    return {name: LEAST_MARGIN * hours for name, hours in found.items()}


def decide(sample: Sample, known: Known, *, room: bool = True) -> Decision:
    """Decides on a running trial from its cycles so far; ``room``: time is left for the cycles up to the next look."""
    count, rival = len(sample.logs), known.rival
    if count in COULD_STILL and not sample.disturbed and rival is not None:
        limit = physical_limit(sample, known.least)
        return _lost(limit, rival, sample, physical=True) if limit < rival.low else GO_ON
    if count in LOOKS:
        return _look(sample, known, room)
    # What the guard objects to is no evidence against a trial, and its repeats are used up: more would be as bad.
    return ENOUGH if sample.disturbed and count + sample.disturbed >= LOOKS[0] else GO_ON


def _look(sample: Sample, known: Known, room: bool) -> Decision:
    rival, look = known.rival, LOOKS.index(len(sample.logs))
    if rival is None:
        return ENOUGH
    error = error_after(sample, known, look)
    if sample.mean + error < rival.low:
        return _lost(sample.mean + error, rival, sample, physical=False)
    if look == len(LOOKS) - 1 or not room or sample.disturbed or sample.mean - error > rival.high:
        return ENOUGH
    # Were all further cycles like these: would the last look decide? If not, it is a tie (stochastic curtailment).
    last = error_after(sample, known, len(LOOKS) - 1)
    tie = sample.mean + last >= rival.low and sample.mean - last <= rival.high
    return ENOUGH if tie else GO_ON


def error_after(sample: Sample, known: Known, look: int) -> float:
    """Returns half the width of the interval of the trial's log speed at a look, from its cycles' noise so far."""
    spread = known.prior.moderated(sample)
    variance = known.between + spread.variance / LOOKS[look]
    return _quantile(spends(look), spread.degrees) * math.sqrt(variance)


def physical_limit(sample: Sample, least: Mapping[str, float]) -> float:
    """Returns the trial's upper bound from the phases of its first cycles, as the logarithm of tokens/hour.

    Each phase may still fall to ``COULD_STILL`` of its shortest time, but not below its physical minimum.
    """
    share = COULD_STILL[len(sample.phases)]
    shortest = {name: min(c.get(name, 0.0) for c in sample.phases) for name in sample.phases[0]}
    hours = {name: max(share * taken, min(taken, least.get(name, 0.0))) for name, taken in shortest.items()}
    return -math.log(sum(hours.values()))


def _quantile(tail: float, degrees: float) -> float:
    return student_quantile(1.0 - tail, max(1, math.floor(degrees)))


def _lost(limit: float, rival: Rival, sample: Sample, *, physical: bool) -> Decision:
    ceiling = Ceiling(math.exp(limit), math.exp(rival.low), rival.trial, len(sample.logs), physical)
    return Decision(Verdict.LOSES, ceiling)
