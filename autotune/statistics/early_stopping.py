"""Decides when a search trial has been measured enough, and when it cannot win any more; pure.

Logarithms of tokens/hour throughout, as in ``statistics.noise``, which says how far they scatter. See
docs/decisions/0021-when-to-stop-measuring.md.

* Looks are taken after ``LOOKS`` cycles; each spends a part of ``ALPHA`` (``spent_by``), Lan and DeMets, Biometrika 70
  (1983), their Pocock-like function. What a look spends is not given back, so that by Bonferroni's
  inequality the looks together err no more often than ``ALPHA``.
* Before the first look only the trial's phases speak (``physical_limit``).
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
"""Clean recorded cycles after which a trial is looked at; it never has more than the last."""
ALPHA = 0.01
"""Chance that a trial as fast as the best is ended for its own bad luck, over all looks; as much again for the luck of
those it is compared with."""

COULD_STILL: Mapping[int, float] = {1: 0.5, 2: 0.7}
"""Share of the shortest time a phase has taken that later cycles may still take, after one cycle and after two. A
margin, not a measurement: a first batch of a new shape may cost what no later one does."""
LEAST_MARGIN = 0.8
"""Share of the shortest time any trial of the study needed for a phase that is taken as the physical minimum."""


class Verdict(StrEnum):
    """Decision on a running trial."""

    GO_ON = "go on"
    ENOUGH = "enough"
    """It is decided, or more cycles would not decide it: interleaved confirmation does, if it leads."""
    LOSES = "loses"
    """The most it can reach is less than the best has at least."""


@dataclass(frozen=True)
class Rival:
    """The best a trial has to beat, in logarithms of tokens/hour."""

    trial: int
    low: float
    """The highest of the lower bounds of all rivals."""
    high: float
    """The highest of their upper bounds."""


@dataclass(frozen=True)
class Known:
    """Everything a running trial is compared with."""

    prior: NoisePrior
    between: float
    """Variance of a process's mean, on top of its cycles' noise."""
    rival: Rival | None
    least: Mapping[str, float]
    """Physical minimum by phase: hours per completion token."""


@dataclass(frozen=True)
class Decision:
    """A verdict and, where the trial loses, its bound."""

    verdict: Verdict
    ceiling: Ceiling | None = None


GO_ON, ENOUGH = Decision(Verdict.GO_ON), Decision(Verdict.ENOUGH)


def with_looks(protocol: Protocol) -> Protocol:
    """``protocol`` with interim looks, if its number of recorded cycles is the default; another number was chosen."""
    return replace(protocol, recorded=LOOKS[-1], looks=LOOKS) if protocol.recorded == LOOKS[0] else protocol


def spent_by(share: float, alpha: float = ALPHA) -> float:
    """Part of ``alpha`` spent after ``share`` (0 to 1) of the cycles: alpha ln(1 + (e - 1) share).

    Lan and DeMets (1983), the function that resembles Pocock's boundaries. O'Brien and Fleming's keep nearly all of it
    for the last look; here most noise is between processes, of which more cycles tell nothing, so to wait gains little.
    """
    return alpha * math.log1p((math.e - 1.0) * share)


@functools.cache
def spends(look: int) -> float:
    """The part of ``ALPHA`` the look after ``LOOKS[look]`` cycles spends."""
    before = spent_by(LOOKS[look - 1] / LOOKS[-1]) if look else 0.0
    return spent_by(LOOKS[look] / LOOKS[-1]) - before


def weigh(
    samples: Sequence[Sample],
    rivals: Sequence[Sequence[Sample]],
    between: float | None = None,
    *,
    on_gpu: bool,
) -> Known:
    """Collects what a running trial is compared with.

    Args:
        samples: of every measured trial of the study.
        rivals: the runs of each configuration it competes with.
        between: variance between processes of one configuration beyond their cycles, as the study's repeats show it
            (``evidence.process_noise``); ``None``: as presumed.
        on_gpu: as of ``recorded_process``.
    """
    prior = fit_prior(samples)
    between = presumed_process(prior, recorded_process(on_gpu=on_gpu)).variance if between is None else between
    found = [_rival(runs, prior, between, len(rivals)) for runs in rivals]
    best = max(found, key=lambda r: r.low, default=None)
    if best is not None:
        best = replace(best, high=max(r.high for r in found))
    return Known(prior, between, best, _least(samples))


def _rival(runs: Sequence[Sample], prior: NoisePrior, between: float, count: int) -> Rival:
    """Bounds of one configuration. ``ALPHA`` is shared by all ``count``, because the best of them is looked for."""
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
    """Decides on a running trial from its cycles so far.

    Args:
        room: whether its time allows the cycles up to the next look.
    """
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
    """Half width of the interval of the trial's logarithm at a look, by what its cycles so far say of the noise."""
    spread = known.prior.moderated(sample)
    variance = known.between + spread.variance / LOOKS[look]
    return _quantile(spends(look), spread.degrees) * math.sqrt(variance)


def physical_limit(sample: Sample, least: Mapping[str, float]) -> float:
    """The most the trial can reach by the phases of its first cycles, as the logarithm of tokens/hour.

    Each phase may still fall to ``COULD_STILL`` of the shortest time it has taken, but not below its physical minimum.
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
