"""Recommends configurations from trials. Pure.

The first row learns exactly as the baseline does. The second, if there is one, shows the gain "if you allow" other
numerics or another group size. A configuration replaces the baseline only if the interval of its gain lies above zero.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple

from autotune.domain import (
    ALONE,
    ENOUGH_CYCLES,
    Configuration,
    Objective,
    Recommendation,
    RecommendationRow,
    StudySpec,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.insights import phases, rewards
from autotune.statistics import evidence, lengths
from autotune.statistics.evidence import Leader, Row
from autotune.statistics.retries import broken_off, disproved
from autotune.wording.sentences import gain_words
from search_spaces import legality
from search_spaces.batch import held_gpus
from search_spaces.knobs import KNOBS, Effect, effects_of_change, moving_lengths
from search_spaces.native import emulated, in_fp8, is_native

UNMEASURED = "not measured yet"
UNMEASURED_BY_BUDGET = "not measured, because the budget ended while it ran; more budget measures it first"


def recommend(
    spec: StudySpec, trials: Sequence[Trial], ended_by: str, *, fingerprint: str = "", now: float = 0.0
) -> Recommendation | None:
    """Returns the recommendation that the trials support; ``None`` if no configuration is feasible."""
    anchor = evidence.reference(trials, spec.baseline)
    if anchor is None:
        return None
    notes: list[str] = []
    unproven: list[_Unproven] = []
    rows: list[RecommendationRow] = []
    for leader in evidence.leaders(trials, spec.baseline, spec.framework):
        floor = evidence.merit(evidence.feasible(trials)[rows[0].configuration]) if rows else 0.0
        kept = _kept(spec, trials, leader, anchor.configuration, floor, notes, unproven)
        if kept is not None:
            notes += _disturbance(trials, leader, kept, anchor.configuration)
            notes += _warm_ups(trials, leader, {kept, anchor.configuration})
            notes += _own_lengths(trials, leader, kept, anchor.configuration)
            notes += _fp8_caution(kept, spec.framework)
            notes += [f"The {leader.row.value} answer has {note}" for note in legality.notes(kept, spec.resources)]
            rows.append(_row(spec, trials, leader.row, kept, anchor))
    notes += [*_alike(spec, trials), *_fp8_emulation(trials)]
    return Recommendation(
        study=spec.name,
        rows=tuple(rows),
        baseline=_baseline_sentence(spec, trials),
        reference=anchor.number,
        ended_by=ended_by,
        notes=tuple(dict.fromkeys([*_unproven_notes(unproven), *notes])),
        fingerprint=fingerprint,
        created_at=max([now, *(t.finished_at or 0.0 for t in trials)]),  # also where the clock was set back
    )


def row_of(spec: StudySpec, trials: Sequence[Trial], configuration: Configuration) -> RecommendationRow | None:
    """Returns the row of one configuration with its figures; ``None`` if it is not feasible."""
    anchor = evidence.reference(trials, spec.baseline)
    if anchor is None or configuration not in evidence.feasible(trials):
        return None
    same = evidence.same_learning(configuration, spec.baseline, spec.framework)
    return _row(spec, trials, Row.SAME_LEARNING if same else Row.PERMITTED, configuration, anchor)


def native_best(spec: StudySpec, trials: Sequence[Trial], row: Row = Row.SAME_LEARNING) -> RecommendationRow | None:
    """Returns the fastest configuration that the framework's own settings reproduce, with the learning that ``row``
    permits; ``None`` if none is feasible. Prefers confirmed ones to those of search trials alone, and both to the
    baseline."""
    held = evidence.feasible(trials)
    found = [c for c in held if is_native(c, spec.framework, spec.resources.device)]
    if row is Row.SAME_LEARNING:
        found = [c for c in found if evidence.same_learning(c, spec.baseline, spec.framework)]
    if not found:
        return None
    floor = evidence.merit(held[spec.baseline]) if spec.baseline in found else 0.0
    faster = [c for c in found if c != spec.baseline and evidence.merit(held[c]) > floor]
    confirmed = [c for c in faster if any(t.kind is TrialKind.CONFIRM for t in held[c])]
    best = max(confirmed or faster or found, key=lambda c: evidence.merit(held[c]))
    return row_of(spec, trials, best)


def _kept(
    spec: StudySpec,
    trials: Sequence[Trial],
    leader: Leader,
    anchor: Configuration,
    floor: float,
    notes: list[str],
    unproven: list[_Unproven],
) -> Configuration | None:
    """Chooses the row's configuration: the leader, else the best other one with a proven gain over the reference and an
    ``evidence.merit`` above ``floor``, else the reference (``None`` for a permitted row)."""
    if leader.configuration == anchor:
        if leader.row is Row.SAME_LEARNING and anchor == spec.baseline:
            compared = any(t.configuration != anchor and (t.tokens_per_hour or t.at_most) for t in trials)
            kept = "Nothing measured faster than the baseline with the same numerics; keep it."
            notes.append(kept if compared else ALONE)
        return anchor
    for configuration in _candidates(spec, trials, leader, anchor):
        if evidence.merit(evidence.feasible(trials)[configuration]) <= floor:
            continue
        doubt = _doubt(spec, trials, configuration, anchor)
        if doubt is not None:
            unproven.append(doubt)
        elif not _earns_less(trials, Leader(leader.row, configuration), anchor, notes):
            return configuration
    return anchor if leader.row is Row.SAME_LEARNING else None


def _candidates(
    spec: StudySpec, trials: Sequence[Trial], leader: Leader, anchor: Configuration
) -> Iterator[Configuration]:
    """Yields the leader, then other confirmed configurations, best first. A leader of search trials alone comes last if
    its gain over the reference is proven and over the first of the others is not."""
    others = evidence.runners_up(trials, spec.baseline, spec.framework, leader)
    held = evidence.feasible(trials)
    if others and not any(t.kind is TrialKind.CONFIRM for t in held[leader.configuration]):
        proven, lead = (evidence.gain(trials, leader.configuration, c) for c in (anchor, others[0]))
        if proven is not None and proven.low > 0 and (lead is None or lead.low <= 0):
            yield from others
            yield leader.configuration
            return
    yield leader.configuration
    yield from others


class _Unproven(NamedTuple):
    """A fast configuration that is not recommended, because its gain is not proven."""

    configuration: Configuration
    disturbed: bool
    """True if other programs are the cause, False if the interval includes no gain."""
    sentence: str


def _doubt(
    spec: StudySpec, trials: Sequence[Trial], configuration: Configuration, anchor: Configuration
) -> _Unproven | None:
    """Explains why a configuration is not proven faster than the reference; ``None`` if it is."""
    found = evidence.gain(trials, configuration, anchor)
    if found is not None and found.low > 0 and found.decided:
        return None
    name = "the baseline" if anchor == spec.baseline else "the reference"
    gained = gain_words(found) if found else "nothing comparable"
    measured = f"{_changes_sentence(configuration, anchor)} measured {gained} against {name}"
    if found is not None and found.cycles >= ENOUGH_CYCLES:
        return _Unproven(configuration, False, f"{measured}: the interval includes no gain, so it is not recommended.")
    sides = ((anchor, name), (configuration, "the candidate"))
    worst, which = max(sides, key=lambda side: operator.truediv(*_disturbed(trials, side[0])))
    lost, of = _disturbed(trials, worst)
    why = f"A gain is not decided: {which} was disturbed in {lost} of {of} cycles"  # first: screens cut long sentences
    return _Unproven(configuration, True, f"{why}; give the study more time on a quieter machine ({measured}).")


def _disturbed(trials: Sequence[Trial], configuration: Configuration) -> tuple[int, int]:
    """Returns the number of disturbed cycles of a configuration's figure, and of all its cycles."""
    cycles = [c for t in evidence.basis(evidence.feasible(trials)[configuration]) for c in t.timed_cycles()]
    return sum(c.noisy for c in cycles), max(1, len(cycles))


def _unproven_notes(unproven: Sequence[_Unproven]) -> Iterator[str]:
    """Yields one note for each reason: the first configuration in full, and the number of others."""
    for disturbed_ones in (False, True):
        found = {one.configuration: one.sentence for one in unproven if one.disturbed is disturbed_ones}
        if found:
            others = len(found) - 1
            are = "another configuration is" if others == 1 else f"{others} other configurations are"
            more = f" For the same reason {are} not recommended." if others else ""
            yield next(iter(found.values())) + more


def _earns_less(trials: Sequence[Trial], leader: Leader, anchor: Configuration, notes: list[str]) -> bool:
    """Tells whether other numerics or learning reduce the reward beyond noise, and if so adds a note."""
    if leader.row is not Row.PERMITTED:
        return False
    held = evidence.feasible(trials)
    change = rewards.compare(held[leader.configuration], held[anchor])
    if change is None or not change.worse:
        return False
    notes.append(
        f"{_changes_sentence(leader.configuration, anchor)} earned less at natural lengths, {change.sentence()}: "
        "it is not recommended."
    )
    return True


def _disturbance(
    trials: Sequence[Trial], leader: Leader, kept: Configuration, anchor: Configuration
) -> tuple[str, ...]:
    """Returns a note on the disturbed cycles that a row omits."""
    lost, of = map(sum, zip(*(_disturbed(trials, one) for one in {kept, anchor}), strict=True))
    if not lost or kept == anchor:
        return ()
    return (
        f"Other programs, or what is done but once, disturbed {lost} of {of} cycles behind the {leader.row.value} "
        "figure; they are left out.",
    )


def _warm_ups(trials: Sequence[Trial], leader: Leader, configurations: AbstractSet[Configuration]) -> tuple[str, ...]:
    """Returns a note on the warm-up cycles that a row omits."""
    held = evidence.feasible(trials)
    runs = [t for one in configurations for t in evidence.basis(held.get(one, ()))]
    left_out = sum(len(t.warming_cycles()) for t in runs)
    if not left_out:
        return ()
    timed = left_out + sum(len(t.speed_cycles()) for t in runs)
    return (
        f"{left_out} of the {timed} cycles behind the {leader.row.value} figure came first in their process and were "
        "much slower than all later ones: a warm-up, which is left out.",
    )


def _own_lengths(
    trials: Sequence[Trial], leader: Leader, kept: Configuration, anchor: Configuration
) -> tuple[str, ...]:
    """Returns a note on a permitted row whose completion lengths differ from the reference's."""
    if leader.row is not Row.PERMITTED or moving_lengths(kept) == moving_lengths(anchor):
        return ()
    held = evidence.feasible(trials)
    here, there = (lengths.spread_words(lengths.completions(held[one])) for one in (kept, anchor))
    more = _completions_per_second(held[kept]) / _completions_per_second(held[anchor]) - 1.0
    moved = ", ".join(
        f"{name} {_text(kept.get(name))}"
        for name in kept.difference(anchor)
        if name in KNOBS and KNOBS[name].moves_lengths
    )
    return (
        f"The permitted answer has {moved}, which changes what is learned: completions become longer or "
        f"shorter. It was measured at lengths of its own ({here} tokens instead of {there}), and makes {more:+.1%} "
        "completions/hour.",
    )


def _completions_per_second(runs: Sequence[Trial]) -> float:
    cycles = [c for t in evidence.basis(runs) for c in t.speed_cycles()]
    return sum(c.rows for c in cycles) / sum(c.seconds for c in cycles)


def _row(
    spec: StudySpec, trials: Sequence[Trial], row: Row, configuration: Configuration, anchor: Trial
) -> RecommendationRow:
    runs = evidence.feasible(trials)[configuration]
    confirmed = [t for t in runs if t.kind is TrialKind.CONFIRM]
    shown = evidence.basis(runs)
    value = evidence.speed(runs)
    error = evidence.half_width(trials, shown)
    is_anchor = configuration == anchor.configuration
    figures = lengths.figures(runs, value)
    room = phases.tightest(runs, spec.memory_limit, spec.resources.device_memory)
    return RecommendationRow(
        title=_title(row, configuration, spec.baseline, spec.framework),
        configuration=configuration,
        tokens_per_hour=value,
        low=value * math.exp(-error),
        high=value * math.exp(error),
        gain=None if is_anchor else evidence.gain(trials, configuration, anchor.configuration),
        confirmed=bool(confirmed),
        worst_case_passed=all(t.worst_case_passed for t in runs),
        phase_shares=_pooled(shown).phase_shares,
        limit=phases.limit_sentence(_pooled(shown), room),
        host_peak=_highest([t.host_peak for t in runs]),
        device_peak=_highest([t.device_peak for t in runs]),
        headroom=None if room is None else room.share,
        trials=tuple(t.number for t in runs),
        changes=changes(configuration, spec.baseline),
        maximum_tokens_per_hour=figures[-1].tokens_per_hour,
        gpus=held_gpus(configuration, spec.resources),
        lengths=figures,
        objective=spec.objective,
        reference_gpus=held_gpus(anchor.configuration, spec.resources),
    )


def _alike(spec: StudySpec, trials: Sequence[Trial]) -> tuple[str, ...]:
    """Returns a note if the objective is tokens per GPU-hour and every trial used the same number of GPUs."""
    held = {held_gpus(t.configuration, spec.resources) for t in trials}
    if spec.objective is Objective.PER_HOUR or len(held) != 1:
        return ()
    return (f"Every trial held {held.pop()} GPUs, so tokens/hour and tokens per GPU-hour rank alike.",)


def _pooled(runs: Sequence[Trial]) -> Trial:
    """Combines all runs of a configuration into one trial, with all cycles and the highest peak."""
    cycles = tuple(c for t in runs for c in t.cycles)
    return runs[0].with_(cycles=cycles, watchdog_peak=_highest([t.watchdog_peak for t in runs]))


def changes(configuration: Configuration, baseline: Configuration) -> tuple[str, ...]:
    """Lists ``name: before -> after`` for every knob that differs from the baseline."""
    return tuple(
        f"{name}: {_text(before)} -> {_text(after)}"
        for name, (after, before) in configuration.difference(baseline).items()
    )


def _title(row: Row, configuration: Configuration, baseline: Configuration, framework: str) -> str:
    if row is Row.SAME_LEARNING:
        return "Same numerics as your baseline" if configuration != baseline else "Your baseline"
    effects = effects_of_change(configuration, baseline, framework)
    allowed = [f"{name} {_text(configuration.get(name))}" for name in effects if effects[name] is not Effect.SPEED]
    return "If you allow " + " and ".join(allowed)


def _baseline_sentence(spec: StudySpec, trials: Sequence[Trial]) -> str:
    mended = disproved(trials)
    failed = [t for t in trials if t.state is TrialState.FAIL and t.number not in mended]
    own = [t for t in failed if t.configuration == spec.baseline]
    for trial in own:
        if trial.configuration in evidence.failed_configurations([trial]) and trial.outcome is not None:
            return trial.outcome.sentence()
    if emulated(spec.baseline):
        return "it ran FP8 in emulation, so nothing is stated over it"
    if spec.baseline in evidence.feasible(trials):
        return "ok"
    return UNMEASURED_BY_BUDGET if broken_off(trials, spec.baseline) else UNMEASURED


def _highest(values: Sequence[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


def _changes_sentence(configuration: Configuration, anchor: Configuration) -> str:
    return ", ".join(f"{n} {_text(after)}" for n, (after, _) in configuration.difference(anchor).items())


def _text(value: object) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def unconfirmed(recommendation: Recommendation) -> Recommendation:
    """Returns a copy with a note if a row's gain is based only on search trials, because the study ended early."""
    waiting = [row for row in recommendation.rows if not row.confirmed and row.gain is not None]
    if not waiting:
        return recommendation
    which = "the leaders" if len(waiting) == len(recommendation.rows) else f'"{waiting[0].title}"'
    note = f"The study ended before {which} could be confirmed next to the baseline."
    return replace(recommendation, notes=(*recommendation.notes, note))


def _fp8_caution(configuration: Configuration, framework: str) -> tuple[str, ...]:
    """Returns the warning that passing trials with FP8 prove little; empty for a configuration without FP8."""
    knobs = in_fp8(configuration, framework)
    if not knobs:
        return ()
    return (
        f"FP8 ({', '.join(knobs)}) passed as not obviously broken, and no more: over a few updates nothing was NaN and "
        "log-probs and gradient lay within their limits; whether it learns as well was not measured.",
    )


def _fp8_emulation(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Names the trials that emulated FP8; empty if none did."""
    ran = [t.number for t in trials if t.emulated and t.feasible]
    if not ran:
        return ()
    numbers = ", ".join(f"#{n}" for n in ran)
    return (f"FP8 was emulated in trials {numbers}: that they run is known, their speed is nobody's; none is ranked.",)
