"""What a study's trials say about each configuration: which ones hold, which lead, against what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from autotune import variation
from autotune.domain import Configuration, FailureReason, Gain, Trial, TrialKind, TrialState
from autotune.retries import disproved
from autotune.student import Noise
from search_spaces.knobs import Effect, effect_of_change

_SAYS_NOTHING = (FailureReason.INFRA, FailureReason.CANCELLED)


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
        if t.state is TrialState.FAIL
        and t.number not in mended
        and t.outcome is not None
        and t.outcome.reason not in _SAYS_NOTHING
    )


def feasible(trials: Iterable[Trial]) -> Mapping[Configuration, Sequence[Trial]]:
    """Configurations that passed the worst case in every trial they had, with their measured trials.

    Without emulated ones: a figure of theirs is nobody's speed, so nothing is stated over it and it leads nothing.
    """
    return _known(trials).held


class _Known:
    """What one tuple of trials says, each part worked out when it is first asked for."""

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
    def noise(self) -> Noise:
        return _noise(self.held)

    @cached_property
    def paired_noise(self) -> Noise:
        return _paired_noise(self.held)


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

    A search trial that was picked for being the best is biased upwards; the others are not.
    """
    if len(runs) == 1:
        return list(runs)
    confirmed = [t for t in runs if t.kind is TrialKind.CONFIRM]
    unchosen = [t for t in runs if t.kind is not TrialKind.SEARCH]
    return confirmed or unchosen or list(runs)


def speed(runs: Sequence[Trial]) -> float:
    """Tokens/hour of a configuration, by its ``basis``."""
    values = [t.tokens_per_hour for t in basis(runs)]
    return math.exp(statistics.fmean(math.log(v) for v in values if v))


def leaders(trials: Sequence[Trial], baseline: Configuration, framework: str) -> tuple[Leader, ...]:
    """The best configuration of each row; the second row only if it is another configuration."""
    held = feasible(trials)
    if not held:
        return ()
    anchor = baseline if baseline in held else ranked_first(held)
    ranked = _ranked(held, anchor, held)
    found: list[Leader] = []
    same = next((c for c in ranked if same_learning(c, baseline, framework)), anchor)
    found.append(Leader(Row.SAME_LEARNING, same))
    if ranked[0] != same:
        found.append(Leader(Row.PERMITTED, ranked[0]))
    return tuple(found)


def runners_up(
    trials: Sequence[Trial], baseline: Configuration, framework: str, leader: Leader
) -> tuple[Configuration, ...]:
    """What was confirmed beside the reference and answers the leader's row as well, best first."""
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


def _in_rounds(runs: Sequence[Trial]) -> bool:
    return any(t.pair is not None for t in basis(runs))


def _logs(runs: Sequence[Trial]) -> list[float]:
    return [math.log(t.tokens_per_hour) for t in runs if t.tokens_per_hour]


def ranked_first(held: Mapping[Configuration, Sequence[Trial]]) -> Configuration:
    """The feasible configuration that ran first."""
    return min(held, key=lambda c: held[c][0].number)


def noise(trials: Sequence[Trial]) -> Noise:
    """Pooled over every configuration of the study that ran in two or more processes.

    Never below what the cycles inside a process already show (a mean of n cycles cannot be known
    better than their spread / sqrt(n)); that figure alone is used while nothing has run twice.
    Search trials of a configuration that was later confirmed are left out: it was chosen for being high.
    """
    return _known(trials).noise


def _noise(held: Mapping[Configuration, Sequence[Trial]]) -> Noise:
    between = _pooled([[math.log(t.tokens_per_hour or 1.0) for t in runs] for runs in _repeats(held)])
    within = _pooled([variation.cycle_logs(t) for runs in held.values() for t in runs])
    counts = [len(t.speed_cycles()) for runs in held.values() for t in runs]
    floor = within.sigma / math.sqrt(statistics.fmean(counts)) if counts else 0.0
    return Noise(floor, within.degrees) if floor >= between.sigma else between


def paired_noise(trials: Sequence[Trial]) -> Noise:
    """The noise of processes that ran in rounds next to each other, as confirmations do.

    A trial outside the rounds says nothing of it: what the machine did since a study's first trial is what running
    next to each other takes out. Until the rounds have shown more, processes are presumed to differ as the stopping
    rule presumes (``variation.presumed_between``), moderated by the rounds (``variation.between_processes``): (d0 s0^2
    + d s^2) / (d0 + d), Smyth (Statistical Applications in Genetics and Molecular Biology 3(1), 2004), eq. 2. To the
    presumption comes what the cycles of the rounds, disturbed ones too, leave open about the mean of their own process.
    What disturbed a search trial is no matter of the rounds.
    """
    return _known(trials).paired_noise


def _paired_noise(held: Mapping[Configuration, Sequence[Trial]]) -> Noise:
    runs = [t for group in held.values() for t in group]
    prior = variation.fit_prior([s for t in runs if (s := variation.sample_of(t)).logs])
    rounds = [[t for t in group if t.pair is not None] for group in held.values()]
    cycles = [logs for group in rounds for t in group if (logs := variation.cycle_logs(t))]
    presumed = variation.presumed_between(prior, on_gpu=any(t.on_gpu for t in runs))
    if cycles:
        presumed += statistics.fmean(prior.moderated(variation.Sample(0, c)).variance / len(c) for c in cycles)
    shown = [[math.log(t.tokens_per_hour or 1.0) for t in group] for group in rounds]
    found = variation.between_processes(shown, presumed)
    return Noise(math.sqrt(found.variance), int(found.degrees))


def repeats(trials: Sequence[Trial]) -> list[list[Trial]]:
    """The trials of each configuration that ran in two or more processes, without those chosen for being fast."""
    return _repeats(feasible(trials))


def _repeats(held: Mapping[Configuration, Sequence[Trial]]) -> list[list[Trial]]:
    groups = []
    for runs in held.values():
        unchosen = [t for t in runs if t.kind is not TrialKind.SEARCH]
        if len(unchosen) >= 2:
            groups.append(unchosen)
    return groups


def _pooled(groups: Iterable[Sequence[float]]) -> Noise:
    found = variation.pooled(groups)
    return Noise(math.sqrt(found.variance), int(found.degrees))


def gain(trials: Sequence[Trial], configuration: Configuration, over: Configuration) -> Gain | None:
    """Throughput of ``configuration`` over ``over``, minus 1, with a 95 % interval.

    Rounds in which both ran next to each other are paired; with none, the two configurations' other
    trials are compared, those from outside the rounds with their like, and ``pairs`` is 0. ``None`` if either was
    never measured.
    """
    held = feasible(trials)
    if configuration not in held or over not in held:
        return None
    rounds = _paired_logs(held[configuration], held[over])
    spread = paired_noise(trials) if rounds else noise(trials)
    if rounds:
        middle = statistics.fmean(rounds)
        error = spread.t * spread.sigma * math.sqrt(2.0 / len(rounds))
    else:
        here, there = basis(held[configuration]), basis(held[over])
        if not _in_rounds(here):
            there = [t for t in held[over] if t.pair is None] or there
        middle = statistics.fmean(_logs(here)) - statistics.fmean(_logs(there))
        error = spread.t * spread.sigma * math.sqrt(1.0 / len(here) + 1.0 / len(there))
    cycles = min(sum(len(t.speed_cycles()) for t in held[c]) for c in (configuration, over))
    return Gain(
        value=math.expm1(middle),
        low=math.expm1(middle - error),
        high=math.expm1(middle + error),
        pairs=len(rounds),
        cycles=cycles,
    )


def _paired_logs(here: Sequence[Trial], there: Sequence[Trial]) -> list[float]:
    mine = {t.pair: t for t in here if t.pair is not None}
    theirs = {t.pair: t for t in there if t.pair is not None}
    return [
        math.log(mine[p].tokens_per_hour or 1.0) - math.log(theirs[p].tokens_per_hour or 1.0)
        for p in sorted(mine.keys() & theirs.keys())
    ]
