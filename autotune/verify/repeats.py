"""Repeats one configuration in fresh processes: the next run, and the spread between runs. Pure.

Each round runs the configuration and, beside it, the baseline, in fresh processes and in turned-round order in every
second round, so that what the machine does meanwhile meets both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import Configuration, Study, Trial, TrialDraft, TrialKind, TrialState
from autotune.statistics import evidence
from autotune.statistics.lengths import replayed
from autotune.statistics.noise import pooled, sample_of

SOURCE = "verify/repeat"
"""``Trial.source`` of these runs."""


@dataclass(frozen=True)
class Spread:
    """Spread of a configuration's tokens/hour from run to run. Standard deviations are shares: 0.02 is 2 %."""

    configuration: Configuration
    runs: int
    tokens_per_hour: float
    """Geometric mean of the runs."""
    low: float
    high: float
    """Slowest and fastest run."""
    between: float | None
    """Standard deviation of one run (one process); ``None`` with one."""
    within: float | None
    """Standard deviation of one cycle inside a process."""
    beside: float | None
    """Standard deviation of a run's ratio to the baseline's beside it; ``None`` of the baseline, or with one round."""
    disturbed: int
    cycles: int
    trials: tuple[int, ...]

    @property
    def of_processes(self) -> float | None:
        """Spread between processes beyond what the spread of their cycles explains."""
        if self.between is None or self.within is None or not self.runs:
            return None
        return math.sqrt(max(0.0, self.between**2 - self.within**2 * self.runs / max(1, self.cycles)))


def measured(trials: Sequence[Trial], configuration: Configuration) -> list[Trial]:
    """Successful repeat runs of a configuration, in order."""
    own = (t for t in trials if t.source == SOURCE and t.configuration == configuration)
    return sorted((t for t in own if t.feasible and t.tokens_per_hour is not None), key=lambda t: t.number)


def next_run(study: Study, trials: Sequence[Trial], configuration: Configuration, times: int) -> Configuration | None:
    """The next run until configuration and baseline have ``times`` runs each; then ``None``.

    A baseline that cannot run is left out; runs of earlier calls count.
    """
    pair = [configuration]
    baseline = study.spec.baseline
    if baseline != configuration and baseline not in evidence.failed_configurations(trials):
        pair.append(baseline)
    done = {one: len(measured(trials, one)) for one in pair}
    round_ = min(done.values())
    if round_ >= times:
        return None
    order = pair if round_ % 2 == 0 else list(reversed(pair))
    return next(one for one in order if done[one] == round_)


def draft(study: Study, trials: Sequence[Trial], configuration: Configuration) -> TrialDraft:
    """A repeat run with a search trial's protocol, at the lengths recorded for it."""
    lengths = replayed(study, trials, configuration)
    protocol = replace(study.spec.protocol, natural=0, maximum=0, double=0, lengths=lengths)
    return study.draft(TrialKind.VERIFY, configuration, protocol, SOURCE)


def spreads(study: Study, trials: Sequence[Trial]) -> tuple[Spread, ...]:
    """Spread of every repeated configuration, the baseline last."""
    baseline = study.spec.baseline
    found = dict.fromkeys(t.configuration for t in trials if t.source == SOURCE and t.state is TrialState.COMPLETE)
    ordered = sorted(found, key=lambda c: c == baseline)
    made = [spread(trials, one, baseline) for one in ordered]
    return tuple(one for one in made if one is not None)


def spread(trials: Sequence[Trial], configuration: Configuration, baseline: Configuration) -> Spread | None:
    """Spread of one configuration's runs; ``None`` before the first run."""
    runs = measured(trials, configuration)
    speeds = [t.tokens_per_hour or 1.0 for t in runs]
    if not speeds:
        return None
    cycles = [c for t in runs for c in t.timed_cycles()]
    logs = [math.log(speed) for speed in speeds]
    beside = [] if configuration == baseline else _ratios(speeds, measured(trials, baseline))
    return Spread(
        configuration=configuration,
        runs=len(runs),
        tokens_per_hour=math.exp(statistics.fmean(logs)),
        low=min(speeds),
        high=max(speeds),
        between=_deviation(logs),
        within=_within(runs),
        beside=_deviation(beside),
        disturbed=sum(c.noisy for c in cycles),
        cycles=len(cycles),
        trials=tuple(t.number for t in runs),
    )


def _ratios(speeds: Sequence[float], others: Sequence[Trial]) -> list[float]:
    return [math.log(here / (there.tokens_per_hour or 1.0)) for here, there in zip(speeds, others, strict=False)]


def _within(runs: Sequence[Trial]) -> float | None:
    found = pooled(sample_of(t).logs for t in runs)
    return math.sqrt(found.variance) if found.degrees else None


def _deviation(logs: Sequence[float]) -> float | None:
    return statistics.stdev(logs) if len(logs) > 1 else None
