"""Evidence on each configuration from a study's trials: feasible ones, leaders, and gains over the reference."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from autotune.domain import Configuration, Gain, Trial, TrialKind, TrialState
from autotune.statistics.lengths import left_open
from autotune.statistics.nodes import unlike
from autotune.statistics.noise import (
    NoisePrior,
    Run,
    fit_prior,
    left_in_median,
    presumed_process,
    recorded_process,
    sample_of,
)
from autotune.statistics.retries import disproved
from search_spaces.knobs import Effect, effect_of_change

if TYPE_CHECKING:
    from autotune.statistics.components import Components

FIRST_LOOK, LATER_LOOKS = 0.95, 0.98
"""Confidence levels of a gain after one confirmation round, and after more. A study looks after each round and ends
when the interval excludes zero, so later looks add chances of error. With these levels, 2.6 % of studies whose leader
is truly no faster call it faster within five looks; with 0.95 at each look, 5.1 % (decision 42)."""
ON_SEVERAL_NODES = 0.999
"""Confidence level of a gain in a study on several nodes. A round takes one slot of many and the search goes on, so
more rounds are affordable, and a wrong answer costs more machines (decision 47)."""


WIDE = statistics.NormalDist().inv_cdf(0.975)


class Row(StrEnum):
    """Rows of a recommendation: configurations that learn as the baseline does, and those with permitted changes."""

    SAME_LEARNING = "same numerics"
    PERMITTED = "permitted"


@dataclass(frozen=True)
class Leader:
    """The best feasible configuration of a row."""

    row: Row
    configuration: Configuration


def same_learning(configuration: Configuration, baseline: Configuration, framework: str) -> bool:
    """Tells whether a configuration differs from the baseline in speed and memory only."""
    return effect_of_change(configuration, baseline, framework) is Effect.SPEED


def failed_configurations(trials: Iterable[Trial]) -> frozenset[Configuration]:
    """Returns the configurations with a trial that failed because of the configuration, unless a later retry passed."""
    trials = tuple(trials)
    mended = disproved(trials)
    return frozenset(
        t.configuration
        for t in trials
        if t.state is TrialState.FAIL and t.number not in mended and t.outcome is not None and not t.inconclusive
    )


def feasible(trials: Iterable[Trial]) -> Mapping[Configuration, Sequence[Trial]]:
    """Returns feasible configurations, without a failure that no later retry disproved, with their measured trials.

    Trials that emulated FP8 are excluded from ranking and reference: their speed is that of no hardware.
    """
    return _known(trials).held


class _Known:
    """Statistics of a tuple of trials, each computed on first use."""

    def __init__(self, trials: tuple[Trial, ...]) -> None:
        self.trials = trials

    @cached_property
    def held(self) -> Mapping[Configuration, Sequence[Trial]]:
        bad = failed_configurations(self.trials)
        found: dict[Configuration, list[Trial]] = {}
        for trial in self.trials:
            measured = trial.feasible and not trial.emulated and trial.tokens_per_hour is not None
            if measured and trial.configuration not in bad:
                found.setdefault(trial.configuration, []).append(trial)
        return MappingProxyType({configuration: tuple(runs) for configuration, runs in found.items()})

    @cached_property
    def clean(self) -> Mapping[Configuration, Sequence[Trial]]:
        """``held`` without runs whose cycles were all disturbed."""
        return {c: clean for c, runs in self.held.items() if (clean := [t for t in runs if not t.only_disturbed])}

    @cached_property
    def cycles(self) -> NoisePrior:
        """Variance of a cycle's logarithm; each trial's own variance is shrunk towards it."""
        return fit_prior([sample_of(t) for group in self.clean.values() for t in group])

    @cached_property
    def recorded(self) -> NoisePrior:
        return recorded_process(on_gpu=any(t.on_gpu for runs in self.held.values() for t in runs))

    @cached_property
    def processes(self) -> Components:
        return self._estimated(self.recorded)

    def processes_from(self, recorded: NoisePrior | None) -> Components:
        return self.processes if recorded is None or recorded == self.recorded else self._estimated(recorded)

    def _estimated(self, recorded: NoisePrior) -> Components:
        from autotune.statistics import components

        return components.estimated(_processes(self.clean, self.cycles), presumed_process(self.cycles, recorded))

    def left_open(self, runs: Iterable[Trial]) -> NoisePrior:
        """Returns the variance of the runs' mean logarithm that the noise of their cycles contributes."""
        parts = [left_in_median(sample_of(t).logs, self.cycles) for t in runs]
        return _summed(parts, float(len(parts)) ** 2)


_LAST: dict[str, _Known] = {}
"""Cache of the latest trials' statistics: one recommendation reads those of the same trials thirty times."""


def _known(trials: Iterable[Trial]) -> _Known:
    last = _LAST.get("last")
    if last is None or last.trials is not trials:
        last = _LAST["last"] = _Known(tuple(trials))
    return last


def reference(trials: Sequence[Trial], baseline: Configuration) -> Trial | None:
    """Returns the trial that gains are relative to: the baseline's, or the first feasible one if that failed."""
    held = feasible(trials)
    first = held[baseline][:1] if baseline in held else [runs[0] for runs in held.values()]
    return min(first, key=lambda t: t.number, default=None)


def basis(runs: Sequence[Trial]) -> list[Trial]:
    """Returns the trials that give a configuration's figure: confirmations, else baseline and retries, else search.

    A search trial that was selected as the best is biased upwards; the others are not. A run whose cycles were all
    disturbed is a bound, used only if there is no other.
    """
    runs = [t for t in runs if not t.only_disturbed] or runs
    if len(runs) == 1:
        return list(runs)
    confirmed = [t for t in runs if t.kind is TrialKind.CONFIRM]
    unchosen = [t for t in runs if t.kind is not TrialKind.SEARCH]
    return confirmed or unchosen or list(runs)


def speed(runs: Sequence[Trial]) -> float:
    """Returns the tokens/hour of a configuration: the geometric mean over its ``basis``."""
    return math.exp(statistics.fmean(math.log(t.tokens_per_hour) for t in basis(runs) if t.tokens_per_hour))


def merit(runs: Sequence[Trial]) -> float:
    """Returns the figure that ranks a configuration: the geometric mean of ``Trial.merit`` over its ``basis``."""
    return math.exp(statistics.fmean(_logs(basis(runs))))


def leaders(trials: Sequence[Trial], baseline: Configuration, framework: str) -> tuple[Leader, ...]:
    """Returns the best configuration of each row; the second row only if it is another configuration.

    If no configuration that learns as the baseline does is feasible, the reference of gains comes first, as permitted.
    """
    held = feasible(trials)
    if not held:
        return ()
    anchor = baseline if baseline in held else ranked_first(held)
    ranked = _ranked(held, anchor, held)
    same = next((c for c in ranked if same_learning(c, baseline, framework)), anchor)
    first = Leader(Row.SAME_LEARNING if same_learning(same, baseline, framework) else Row.PERMITTED, same)
    return (first,) if ranked[0] == same else (first, Leader(Row.PERMITTED, ranked[0]))


def runners_up(
    trials: Sequence[Trial], baseline: Configuration, framework: str, leader: Leader
) -> tuple[Configuration, ...]:
    """Returns other confirmed configurations that qualify for the leader's row, best first."""
    held = feasible(trials)
    anchor = baseline if baseline in held else ranked_first(held)
    same = leader.row is Row.SAME_LEARNING
    able = [
        c
        for c, runs in held.items()
        if any(t.kind is TrialKind.CONFIRM for t in runs)
        and c not in (anchor, leader.configuration)
        and same_learning(c, baseline, framework) is same
    ]
    return tuple(_ranked(held, anchor, able))


def _ranked(
    held: Mapping[Configuration, Sequence[Trial]], anchor: Configuration, which: Iterable[Configuration]
) -> list[Configuration]:
    """Sorts configurations, best first.

    The anchor ran within and outside the confirmation rounds, so it shows how much faster or slower the machine was in
    them. Figures from outside the rounds are corrected by that; otherwise a slow hour would put unconfirmed
    configurations first.
    """
    outside = _logs([t for t in held[anchor] if t.pair is None])
    inside = _logs([t for t in held[anchor] if t.pair is not None])
    moved = statistics.fmean(inside) - statistics.fmean(outside) if inside and outside else 0.0

    def comparable(configuration: Configuration) -> float:
        rests_on = basis(held[configuration])
        return statistics.fmean(_logs(rests_on)) + (0.0 if any(t.pair is not None for t in rests_on) else moved)

    return sorted(which, key=lambda c: (-comparable(c), held[c][0].number))


def _logs(runs: Sequence[Trial]) -> list[float]:
    return [math.log(t.merit) for t in runs if t.merit]


def ranked_first(held: Mapping[Configuration, Sequence[Trial]]) -> Configuration:
    """Returns the feasible configuration that ran first."""
    return min(held, key=lambda c: held[c][0].number)


def process_noise(trials: Sequence[Trial], recorded: NoisePrior | None = None) -> Components:
    """Estimates the variance between processes of one configuration beyond their cycles, from prior and repeats.

    Every configuration that was measured twice contributes, a search trial beside its confirmations too, although
    selection for speed makes it differ more on average. Only the study's first trial is omitted, because it ran on a
    machine that had been idle for minutes.

    Args:
        recorded: prior; by default that of recorded studies (``noise.recorded_process``).
    """
    return _known(trials).processes_from(recorded)


def _processes(held: Mapping[Configuration, Sequence[Trial]], cycles: NoisePrior) -> list[Run]:
    """Returns the runs of configurations that ran more than once, ordered by number; single runs tell nothing."""
    later = ([t for t in group if t.kind is not TrialKind.BASELINE] for group in held.values())
    runs = sorted((t for group in later if len(group) > 1 for t in group), key=lambda t: t.number)
    return [
        Run(
            configuration=t.configuration,
            moment=_moment(t),
            log=_log(t),
            variance=left_in_median(sample_of(t).logs, cycles).variance,
        )
        for t in runs
    ]


def _moment(trial: Trial) -> tuple[str, int]:
    """Returns a label that is equal for trials of one confirmation round, which ran next to each other."""
    return ("trial", trial.number) if trial.pair is None else ("round", trial.pair)


def _summed(parts: Sequence[NoisePrior], divisor: float) -> NoisePrior:
    """Sums variances and divides by ``divisor``, with Satterthwaite's degrees (Biometrics Bulletin 2, 1946)."""
    total = sum(p.variance for p in parts)
    squares = sum(p.variance**2 / p.degrees for p in parts)
    return NoisePrior(total / divisor, total**2 / squares if squares > 0.0 else math.inf)


def half_width(trials: Sequence[Trial], runs: Sequence[Trial]) -> float:
    """Returns half the width of the 95 % interval of the mean logarithm of ``runs``, trials of one configuration."""
    known = _known(trials)
    moments = sum(t.pair is None for t in runs) / len(runs) ** 2
    return known.processes.half_width(1.0 / len(runs), known.left_open(runs), moments=moments)


def apart(trials: Sequence[Trial], runs: Sequence[Trial], others: Sequence[Sequence[float]]) -> float:
    """Returns half the width of the 95 % interval of the log ratio between processes of one configuration.

    Args:
        trials: the whole study.
        runs: its trials of the configuration.
        others: logarithms of each cycle's tokens/hour, for each additional process.
    """
    known = _known(trials)
    further = _summed([left_in_median(logs, known.cycles) for logs in others], float(len(others)) ** 2)
    cycles = _summed([known.left_open(runs), further], 1.0)
    return known.processes.half_width(1.0 / len(runs) + 1.0 / len(others), cycles)


def gain(
    trials: Sequence[Trial], configuration: Configuration, over: Configuration, process: NoisePrior | None = None
) -> Gain | None:
    """Estimates the throughput of ``configuration`` over ``over`` in the study's objective, minus 1, with its interval.

    Every screen, page, report and route uses this function for the difference of two configurations. Swapped arguments
    give the inverse ratio and the same decision. If a knob changes the lengths, the interval includes the uncertainty
    from few completions. ``None`` if the configurations are equal, or either has no undisturbed cycle.

    Args:
        trials: the whole study, which shows how much processes differ.
        process: prior knowledge of the variance between processes; by default that of recorded studies
            (``noise.recorded_process``).
    """
    here, there = _sides(trials, configuration, over)
    if not here:
        return None
    rounds = _rounds(here, there)
    known, share = _known(trials), 1.0 / len(here) + 1.0 / len(there)
    error = known.processes_from(process).half_width(
        share,
        _summed([known.left_open(here), known.left_open(there)], 1.0),
        _level(known.trials, len(rounds)),
        moments=0.0 if rounds else share,
    )
    error = math.hypot(error, WIDE * math.sqrt(left_open(here, there) + (0.0 if rounds else unlike(here, there))))
    middle = _middle(here, there)
    return Gain(
        value=math.expm1(middle),
        low=math.expm1(middle - error),
        high=math.expm1(middle + error),
        pairs=len(rounds),
        cycles=min(sum(len(t.speed_cycles()) for t in side) for side in (here, there)),
        level=ON_SEVERAL_NODES if rounds and on_several_nodes(trials) else FIRST_LOOK,
    )


def gain_value(trials: Sequence[Trial], configuration: Configuration, over: Configuration) -> float | None:
    """Returns the value of ``gain`` without its interval, whose computation takes a hundred times as long."""
    here, there = _sides(trials, configuration, over)
    return math.expm1(_middle(here, there)) if here else None


def _sides(
    trials: Sequence[Trial], configuration: Configuration, over: Configuration
) -> tuple[Sequence[Trial], Sequence[Trial]]:
    """Returns the runs of both by which two configurations are compared; empty if they are not comparable.

    Rounds in which both ran next to each other, on one node, are paired, in one order. Without such rounds each has its
    ``basis``; if one never ran in a round, the other has only its runs outside the rounds.
    """
    clean = _known(trials).clean
    if configuration == over or configuration not in clean or over not in clean:
        return (), ()
    here, there = clean[configuration], clean[over]
    rounds = _rounds(here, there)
    if rounds:
        return [a for a, _ in rounds], [b for _, b in rounds]
    return basis(_outside_rounds(here, there)), basis(_outside_rounds(there, here))


def _outside_rounds(runs: Sequence[Trial], others: Sequence[Trial]) -> Sequence[Trial]:
    alone = all(t.pair is None and t.kind is not TrialKind.BASELINE for t in basis(others))
    return ([t for t in runs if t.pair is None] or runs) if alone else runs


def _middle(here: Sequence[Trial], there: Sequence[Trial]) -> float:
    return statistics.fmean(map(_log, here)) - statistics.fmean(map(_log, there))


def on_several_nodes(trials: Iterable[Trial]) -> bool:
    """Tells whether trials of the study ran on more than one node of a cluster."""
    return len({t.node for t in trials if t.node}) > 1


def _level(trials: Sequence[Trial], looks: int) -> float:
    if looks and on_several_nodes(trials):
        return ON_SEVERAL_NODES
    return LATER_LOOKS if looks > 1 else FIRST_LOOK


def _rounds(here: Sequence[Trial], there: Sequence[Trial]) -> list[tuple[Trial, Trial]]:
    mine = {t.pair: t for t in here if t.pair is not None}
    theirs = {t.pair: t for t in there if t.pair is not None}
    both = ((mine[p], theirs[p]) for p in sorted(mine.keys() & theirs.keys()))
    return [(a, b) for a, b in both if a.node == b.node]


def _log(trial: Trial) -> float:
    return math.log(trial.merit or 1.0)
