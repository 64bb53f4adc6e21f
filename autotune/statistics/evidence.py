"""Evidence on each configuration from a study's trials: which ones hold, which lead, against what."""

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
"""Levels of the interval of a gain after one round, and after more. A study looks after each round and ends when the
interval excludes no gain, so later looks get more chances to be wrong. With these, of studies whose leader is truly no
faster, 2.6 % call it faster within five looks; with 0.95 at each look 5.1 % do (decision 42)."""
ON_SEVERAL_NODES = 0.999
"""The same where trials run on several nodes: a round there takes one place of many, and the others go on searching, so
a study can ask for more of them, and a wrong answer costs more machines (decision 47)."""


WIDE = statistics.NormalDist().inv_cdf(0.975)


class Row(StrEnum):
    """The two answers of a study (design: same learning; what is possible if more is allowed)."""

    SAME_LEARNING = "same learning"
    PERMITTED = "permitted"


@dataclass(frozen=True)
class Leader:
    """The best feasible configuration of a row."""

    row: Row
    configuration: Configuration


def same_learning(configuration: Configuration, baseline: Configuration, framework: str) -> bool:
    """Whether only speed and memory differ from the baseline."""
    return effect_of_change(configuration, baseline, framework) is Effect.SPEED


def failed_configurations(trials: Iterable[Trial]) -> frozenset[Configuration]:
    """Configurations of which any trial failed for a reason of its own, and no later retry passed."""
    trials = tuple(trials)
    mended = disproved(trials)
    return frozenset(
        t.configuration
        for t in trials
        if t.state is TrialState.FAIL and t.number not in mended and t.outcome is not None and not t.inconclusive
    )


def feasible(trials: Iterable[Trial]) -> Mapping[Configuration, Sequence[Trial]]:
    """Configurations that passed the worst case in every trial, with their measured trials.

    Trials that emulated FP8 are excluded: their speed is that of no hardware, so they are neither ranked nor used as
    reference.
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
        """``held`` without runs of which every cycle was disturbed."""
        return {c: clean for c, runs in self.held.items() if (clean := [t for t in runs if not t.only_disturbed])}

    @cached_property
    def cycles(self) -> NoisePrior:
        """Variance of a cycle's logarithm, by which each trial's own cycles are moderated."""
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
        """Variance that their cycles leave in the mean of the runs' logarithms."""
        parts = [left_in_median(sample_of(t).logs, self.cycles) for t in runs]
        return _summed(parts, float(len(parts)) ** 2)


_LAST: dict[str, _Known] = {}
"""Of the last trials anybody asked about: one recommendation asks thirty times about the same."""


def _known(trials: Iterable[Trial]) -> _Known:
    last = _LAST.get("last")
    if last is None or last.trials is not trials:
        last = _LAST["last"] = _Known(tuple(trials))
    return last


def reference(trials: Sequence[Trial], baseline: Configuration) -> Trial | None:
    """The trial gains are stated over: the baseline's, or the first feasible one if that failed."""
    held = feasible(trials)
    if baseline in held:
        return held[baseline][0]
    first = [runs[0] for runs in held.values()]
    return min(first, key=lambda t: t.number, default=None)


def basis(runs: Sequence[Trial]) -> list[Trial]:
    """The trials a configuration's figure rests on: its confirmations, else its baseline and retries, else its search.

    A search trial that was picked for being the best is biased upwards; the others are not. A run of which every cycle
    was disturbed is a bound, so that it counts only where there is no other.
    """
    runs = [t for t in runs if not t.only_disturbed] or runs
    if len(runs) == 1:
        return list(runs)
    confirmed = [t for t in runs if t.kind is TrialKind.CONFIRM]
    unchosen = [t for t in runs if t.kind is not TrialKind.SEARCH]
    return confirmed or unchosen or list(runs)


def speed(runs: Sequence[Trial]) -> float:
    """Tokens/hour of a configuration, by its ``basis``."""
    values = [t.tokens_per_hour for t in basis(runs)]
    return math.exp(statistics.fmean(math.log(v) for v in values if v))


def merit(runs: Sequence[Trial]) -> float:
    """Figure a configuration is ranked by: ``Trial.merit`` over its ``basis``."""
    return math.exp(statistics.fmean(_logs(basis(runs))))


def leaders(trials: Sequence[Trial], baseline: Configuration, framework: str) -> tuple[Leader, ...]:
    """The best configuration of each row; the second row only if it is another configuration.

    Where nothing held that learns as the baseline does, what gains are stated over stands first, as permitted.
    """
    held = feasible(trials)
    if not held:
        return ()
    anchor = baseline if baseline in held else ranked_first(held)
    ranked = _ranked(held, anchor, held)
    found: list[Leader] = []
    same = next((c for c in ranked if same_learning(c, baseline, framework)), anchor)
    found.append(Leader(Row.SAME_LEARNING if same_learning(same, baseline, framework) else Row.PERMITTED, same))
    if ranked[0] != same:
        found.append(Leader(Row.PERMITTED, ranked[0]))
    return tuple(found)


def runners_up(
    trials: Sequence[Trial], baseline: Configuration, framework: str, leader: Leader
) -> tuple[Configuration, ...]:
    """Other configurations that were confirmed and qualify for the leader's row, best first."""
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
    """``which``, best first.

    Where the machine was faster or slower in the rounds than before them is seen by the anchor, which ran in both: by
    as much a figure from outside the rounds is moved, or a slow hour would put whatever was not confirmed in it before
    what was.
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
    """The feasible configuration that ran first."""
    return min(held, key=lambda c: held[c][0].number)


def process_noise(trials: Sequence[Trial], recorded: NoisePrior | None = None) -> Components:
    """How much processes of one configuration differ by beyond their cycles: as presumed, and as the study has shown.

    Every configuration that was measured twice tells of it, a search trial beside its confirmations too: one that was
    chosen for being fast differs from them by more, on average, than one that was not. Only the study's first trial
    is left out, because it ran on a machine that had not run for minutes.

    Args:
        recorded: what is known beforehand; left out, what recorded studies show (``noise.recorded_process``).
    """
    return _known(trials).processes_from(recorded)


def _processes(held: Mapping[Configuration, Sequence[Trial]], cycles: NoisePrior) -> list[Run]:
    """Returns the runs of what ran more than once, in their order; a single run says nothing of how processes
    differ."""
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
    """Trials with the same one ran next to each other."""
    return ("trial", trial.number) if trial.pair is None else ("round", trial.pair)


def _summed(parts: Sequence[NoisePrior], divisor: float) -> NoisePrior:
    """The sum of variances over ``divisor``, with Satterthwaite's degrees (Biometrics Bulletin 2, 1946)."""
    total = sum(p.variance for p in parts)
    squares = sum(p.variance**2 / p.degrees for p in parts)
    return NoisePrior(total / divisor, total**2 / squares if squares > 0.0 else math.inf)


def half_width(trials: Sequence[Trial], runs: Sequence[Trial]) -> float:
    """Half the width of the 95 % interval of the mean logarithm of ``runs``, trials of one configuration."""
    known = _known(trials)
    moments = sum(t.pair is None for t in runs) / len(runs) ** 2
    return known.processes.half_width(1.0 / len(runs), known.left_open(runs), moments=moments)


def another_run(trials: Sequence[Trial], cycles: int) -> float:
    """Half the width, as a logarithm, within which 95 % of further runs of one configuration lie.

    Args:
        cycles: undisturbed cycles of a run.
    """
    known = _known(trials)
    left = NoisePrior(known.cycles.variance / max(1, cycles), known.cycles.degrees)
    return known.processes.half_width(1.0, left, moments=1.0)


def apart(trials: Sequence[Trial], runs: Sequence[Trial], others: Sequence[Sequence[float]]) -> float:
    """Half the width of the 95 % interval of the log ratio between processes of one configuration.

    Args:
        runs: trials of it; ``trials`` are the whole study, and tell how much processes differ.
        others: for each further process, the logarithms of its cycles' tokens/hour.
    """
    known = _known(trials)
    further = _summed([left_in_median(logs, known.cycles) for logs in others], float(len(others)) ** 2)
    cycles = _summed([known.left_open(runs), further], 1.0)
    return known.processes.half_width(1.0 / len(runs) + 1.0 / len(others), cycles)


def gain(
    trials: Sequence[Trial], configuration: Configuration, over: Configuration, process: NoisePrior | None = None
) -> Gain | None:
    """Throughput of ``configuration`` over ``over`` in the study's objective, minus 1, with its interval.

    Rounds in which both ran next to each other, on one node, are paired; with none, the two configurations' other
    trials are compared, those from outside the rounds with their like, and ``pairs`` is 0. ``None`` if either has no
    undisturbed cycle.

    Args:
        process: what is known beforehand of the variance between processes; left out, what recorded studies show
            (``noise.recorded_process``).
    """
    clean = _known(trials).clean
    if configuration not in clean or over not in clean:
        return None
    here, there = clean[configuration], clean[over]
    if not _rounds(here, there):
        here = basis(here)
        if not any(t.pair is not None for t in here):
            there = [t for t in there if t.pair is None] or there
        there = basis(there)
    return ratio(trials, here, there, process)


def ratio(
    trials: Sequence[Trial], here: Sequence[Trial], there: Sequence[Trial], process: NoisePrior | None = None
) -> Gain | None:
    """Throughput of the runs ``here`` over those ``there``, minus 1, with its interval; ``None`` as in ``gain``.

    Runs of one round are paired, and others then left out. Where a knob moves the lengths, the interval holds what so
    few completions leave open of them.

    Args:
        trials: the whole study, which tells how much processes differ.
        here: runs of one configuration.
        there: runs of another one.
        process: as of ``gain``.
    """
    here, there = ([t for t in side if t.tokens_per_hour and not t.only_disturbed] for side in (here, there))
    if not here or not there:
        return None
    rounds = _rounds(here, there)
    if rounds:
        here, there = ([both[side] for both in rounds] for side in (0, 1))
    middle = statistics.fmean(map(_log, here)) - statistics.fmean(map(_log, there))
    known, share = _known(trials), 1.0 / len(here) + 1.0 / len(there)
    error = known.processes_from(process).half_width(
        share,
        _summed([known.left_open(here), known.left_open(there)], 1.0),
        _level(known.trials, len(rounds)),
        moments=0.0 if rounds else share,
    )
    error = math.hypot(error, WIDE * math.sqrt(left_open(here, there) + (0.0 if rounds else unlike(here, there))))
    return Gain(
        value=math.expm1(middle),
        low=math.expm1(middle - error),
        high=math.expm1(middle + error),
        pairs=len(rounds),
        cycles=min(sum(len(t.speed_cycles()) for t in side) for side in (here, there)),
        level=ON_SEVERAL_NODES if rounds and on_several_nodes(trials) else FIRST_LOOK,
    )


def on_several_nodes(trials: Iterable[Trial]) -> bool:
    """Whether trials of the study ran on more than one node of a cluster."""
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
