"""Explains a recommended configuration: the gain of each knob against measured neighbours, and the failures next to it.
Pure.

A neighbour differs in one knob. Where none was measured, configurations that differ in a few knobs speak for all of
those together, and it is said. Knobs that follow from others do not count as a difference, and steps per generation
are compared as a share of an update, because that is what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Configuration, Gain, Trial, TrialKind, TrialState
from autotune.domain.differences import DERIVED, STEPS, Differences, chosen_differences, update_share
from autotune.domain.measures import phase_seconds
from autotune.insights.feasibility import cause
from autotune.insights.ruled_out import RuledOut
from autotune.statistics import evidence
from autotune.statistics.retries import disproved
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue

MOST_KNOBS = 3
"""Most knobs in which two configurations may differ; with more, the gain cannot be attributed to a knob."""
MOST_LOOKED_AT = 50
"""Configurations of each value that are compared where no neighbour was measured; bounds the pairs."""
MOST_PAIRS = 5
"""Pairs of other configurations that are shown for a knob."""
MOST_CONTRASTS = 20
"""Neighbours that are shown for a knob, and of those without a figure too; a study of thousands has thousands."""


@dataclass(frozen=True)
class Change:
    """One knob's value in another configuration and in this one; ``None``: not set."""

    knob: str
    before: KnobValue | None
    after: KnobValue | None

    def words(self) -> str:
        """``micro_batch_size 2 -> 8``."""
        return f"{self.knob} {knob_value(self.before)} -> {knob_value(self.after)}"


@dataclass(frozen=True)
class Contrast:
    """Two measured configurations and the gain from the first to the second."""

    changes: tuple[Change, ...]
    gain: Gain
    before: tuple[int, ...]
    """Numbers of the first one's trials."""
    after: tuple[int, ...]
    phases: Mapping[str, float]
    """By phase, the change of its time for a token as a share of the first one's whole time for a token: -0.2 means
    that this phase made the cycle 20 % shorter. They sum to 1 / (1 + gain) - 1. Largest change first."""


@dataclass(frozen=True)
class FailedNeighbour:
    """A trial one knob away without a speed: it failed, or was stopped because it could not win."""

    change: Change
    """From the answer to that trial."""
    trial: int
    cause: str = ""
    """How it failed; empty if it was stopped."""
    at_least: float | None = None
    """Gain of the answer over a trial that was stopped, at least."""


@dataclass(frozen=True)
class Reason:
    """The evidence for one knob's value in the recommended configuration."""

    knob: str
    here: KnobValue | None
    changed: bool
    """It differs from the configuration gains are stated over."""
    contrasts: tuple[Contrast, ...]
    """Towards the answer, from configurations that differ in this knob alone; the one from the reference's value
    first, then by trial; ``MOST_CONTRASTS`` of them."""
    together: Contrast | None = None
    """Where there is none from the reference's value: the step with that of few more knobs, towards the answer or,
    where there is none such, between two other configurations."""
    elsewhere: tuple[Contrast, ...] = ()
    """The same step between two other configurations that differ in nothing else."""
    failed_neighbours: tuple[FailedNeighbour, ...] = ()

    @property
    def weight(self) -> float:
        """Sort key: absolute gain of the best known comparison."""
        found = self.contrasts or ((self.together,) if self.together else ()) or self.elsewhere
        if found:
            return abs(found[0].gain.value)
        return max((f.at_least or 0.0 for f in self.failed_neighbours), default=0.0)


@dataclass(frozen=True)
class RowReasons:
    """Reasons for one row of a recommendation."""

    title: str
    limits: tuple[str, ...]
    """What limits it; then, for memory, which step further a trial could not hold."""
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class Why:
    """Reasons for a whole recommendation, with counts of the search space."""

    rows: tuple[RowReasons, ...]
    ruled_out: tuple[RuledOut, ...]
    combinations: int
    """Different combinations of the space, legal or not."""
    legal: int
    tried: int
    """Those that were run."""
    exact: bool
    """``combinations`` and ``legal`` are counts, not estimates."""
    began: tuple[str, ...] = ()
    """What the search began with, in words; empty: with no earlier study."""


def reasons(trials: Sequence[Trial], configuration: Configuration, reference: Configuration) -> tuple[Reason, ...]:
    """One reason for each knob that was changed or has a measured neighbour, largest gain first.

    Args:
        configuration: the answer; feasible.
    """
    held = evidence.feasible(trials)
    if configuration not in held:
        return ()
    changed = chosen_differences(reference, configuration)
    near = {c: found for c in held if 1 <= len(found := chosen_differences(c, configuration)) <= MOST_KNOBS}
    ends = failed_neighbours(trials, configuration)
    names = {*changed, *(next(iter(d)) for d in near.values() if len(d) == 1), *(f.change.knob for f in ends)}
    made = (_reason(trials, configuration, changed, near, ends, name) for name in sorted(names))
    return tuple(sorted(made, key=lambda r: (not r.changed, -r.weight, r.knob)))


def _reason(
    trials: Sequence[Trial],
    configuration: Configuration,
    changed: Differences,
    near: Mapping[Configuration, Differences],
    ends: Sequence[FailedNeighbour],
    name: str,
) -> Reason:
    first = changed.get(name, (None, None))[0]
    alone = [c for c, found in near.items() if set(found) == {name}]
    alone.sort(key=lambda c: c.get(name) != first or name not in changed)
    contrasts = [found for c in alone[:MOST_CONTRASTS] if (found := contrast(trials, c, configuration)) is not None]
    direct = name in changed and any(c.changes[0].before == first for c in contrasts)
    step = changed.get(name)
    elsewhere = () if step is None else _elsewhere(trials, configuration, name, step)
    pair = None if step is None or direct or elsewhere else _pair(trials, configuration, name, step)
    return Reason(
        knob=name,
        here=configuration.get(name),
        changed=name in changed,
        contrasts=tuple(contrasts),
        together=None if pair is None else contrast(trials, *pair),
        elsewhere=elsewhere,
        failed_neighbours=tuple(f for f in ends if f.change.knob == name)[:MOST_CONTRASTS],
    )


def contrast(trials: Sequence[Trial], before: Configuration, after: Configuration) -> Contrast | None:
    """Gain from configuration ``before`` to ``after``; ``None`` if either was not measured."""
    held = evidence.feasible(trials)
    gain = evidence.gain(trials, after, before)
    if gain is None:
        return None
    return Contrast(
        changes=tuple(Change(n, a, b) for n, (a, b) in chosen_differences(before, after).items()),
        gain=gain,
        before=tuple(t.number for t in held[before]),
        after=tuple(t.number for t in held[after]),
        phases=_phase_changes(evidence.basis(held[before]), evidence.basis(held[after])),
    )


def failed_neighbours(trials: Sequence[Trial], configuration: Configuration) -> tuple[FailedNeighbour, ...]:
    """Trials one knob away from ``configuration`` that failed or were stopped, by number."""
    held, mended = evidence.feasible(trials), disproved(trials)
    own = evidence.speed(held[configuration]) if configuration in held else None
    found = []
    for trial in sorted(trials, key=lambda t: t.number):
        apart = chosen_differences(configuration, trial.configuration)
        if len(apart) != 1 or trial.number in mended:
            continue
        ((name, (here, there)),) = apart.items()
        change = Change(name, here, there)
        if trial.at_most and own:
            found.append(FailedNeighbour(change, trial.number, at_least=own / trial.at_most - 1.0))
        elif _failed(trial) and trial.outcome is not None:
            found.append(FailedNeighbour(change, trial.number, cause=cause(trial.outcome)))
    return tuple(found)


def _failed(trial: Trial) -> bool:
    searched = trial.kind.is_searched or trial.kind is TrialKind.CONFIRM
    blamed = trial.outcome is not None and not trial.outcome.ok and not trial.inconclusive
    return searched and trial.state is TrialState.FAIL and blamed


def _elsewhere(
    trials: Sequence[Trial],
    configuration: Configuration,
    name: str,
    step: tuple[KnobValue | None, KnobValue | None],
) -> tuple[Contrast, ...]:
    """The same step of a knob between other configurations that differ in it alone; first trials first."""
    first: dict[tuple[object, ...], Configuration] = {}
    second: dict[tuple[object, ...], Configuration] = {}
    for found in evidence.feasible(trials):
        if found != configuration and found.get(name) in step:
            (first if found.get(name) == step[0] else second)[_without(found, name)] = found
    pairs = [(first[key], second[key]) for key in first if key in second][:MOST_PAIRS]
    made = (contrast(trials, before, after) for before, after in pairs)
    return tuple(c for c in made if c is not None)


def _pair(
    trials: Sequence[Trial],
    configuration: Configuration,
    name: str,
    step: tuple[KnobValue | None, KnobValue | None],
) -> tuple[Configuration, Configuration] | None:
    """Two measured configurations with this step of ``name`` and the fewest others, ``MOST_KNOBS`` at most in all;
    of equals one with the answer in it, then the first."""
    held = list(evidence.feasible(trials))
    there = [c for c in held if c.get(name) == step[0]][:MOST_LOOKED_AT]
    here = [configuration, *(c for c in held if c.get(name) == step[1] and c != configuration)][:MOST_LOOKED_AT]
    sized = [(len(chosen_differences(a, b)), b != configuration, i, a, b) for i, b in enumerate(here) for a in there]
    near = [found for found in sized if found[0] <= MOST_KNOBS]
    return min(near, key=lambda found: found[:3])[3:] if near else None


def _without(configuration: Configuration, name: str) -> tuple[object, ...]:
    """Hashable key of a configuration without ``name`` and without knobs that follow from others."""
    share = update_share(configuration)
    dropped = {name, *DERIVED} if share is None else {name, STEPS, *DERIVED}
    rest = tuple((n, type(v).__name__, v) for n, v in configuration.items() if n not in dropped)
    return (rest, share if name != STEPS else None)


def _phase_changes(before: Sequence[Trial], after: Sequence[Trial]) -> Mapping[str, float]:
    there, here = _seconds_per_token(before), _seconds_per_token(after)
    total = sum(there.values())
    if total <= 0 or not here:
        return {}
    moved = {p: (here.get(p, 0.0) - there.get(p, 0.0)) / total for p in {*there, *here}}
    return dict(sorted(moved.items(), key=lambda item: (-abs(item[1]), item[0])))


def _seconds_per_token(runs: Iterable[Trial]) -> Mapping[str, float]:
    """Seconds per completion token by phase, over all speed cycles of ``runs``; empty without a cycle."""
    cycles = [c for t in runs for c in t.speed_cycles()]
    tokens = sum(c.completion_tokens for c in cycles)
    return {phase: spent / tokens for phase, spent in phase_seconds(cycles).items()} if tokens else {}
