"""The plan before the first trial, and the screen at the end of a study; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from autotune.cli.screens.text import LABEL_WIDTH, SMALLEST_SHARE, LabelGrid, clock_time, fit
from autotune.domain import Budget, Protocol, RecommendationRow, StudySpec, Trial
from autotune.insights.feasibility import advice
from autotune.insights.standings import count, failure_groups
from autotune.insights.usage_words import roof_words
from autotune.insights.why import RowReasons, Why, knob_lines, range_words, ruled_words
from autotune.recommendation.reading import StudyReading
from autotune.statistics import evidence
from autotune.study.budget import GRACE_S
from autotune.wording.numbers import counted, format_duration, format_size, percent, rate
from autotune.wording.sentences import (
    UNITS,
    baseline_words,
    evidence_words,
    headline,
    lengths_words,
    machine_words,
    memory_words,
    model_name,
    nothing_words,
    over,
    row_gain_words,
    speed_words,
)
from autotune.wording.text import changes, clean, in_order, knob_value

if TYPE_CHECKING:
    from autotune.specification.prepare import Prepared

SUGGESTIONS = 3
TEXT_WIDTH = 80 - LABEL_WIDTH


def plan_screen(prepared: Prepared, budget: Budget, now: float, spent_wall_s: float = 0.0) -> RenderableType:
    """Draws the plan: model, whole baseline, number of combinations, measurements, end.

    ``budget`` is the whole study's; ``spent_wall_s`` seconds of it are used. ``now`` is UTC seconds.
    """
    grid, spec, same = LabelGrid(), prepared.spec, prepared.same_learning
    grid.add("model", _model(spec))
    grid.add("baseline", _baseline(spec))
    grid.add("space", f"{prepared.legal:,} legal combinations; {same:,} of them only change speed and memory")
    grid.add("measured", _measured(spec.protocol, spec))
    grid.add("stops", _stops(budget, now, spent_wall_s))
    grid.block("published", prepared.scaling)
    grid.block("workload", filter(None, [prepared.workload]))
    return grid.table


def _model(spec: StudySpec) -> str:
    limit = f", memory limit {format_size(spec.memory_limit)}" if spec.memory_limit else ""
    return f"{fit(model_name(spec.workload.model), 36)} · {spec.framework} · {machine_words(spec.resources)}{limit}"


def _baseline(spec: StudySpec) -> str:
    knobs = ", ".join(f"{name} {knob_value(spec.baseline[name], name)}" for name in in_order(spec.baseline))
    return f"{spec.workload.rows_per_update} rows per update; {knobs}"


def _measured(protocol: Protocol, spec: StudySpec) -> str:
    longest = spec.workload.max_prompt_length + spec.workload.max_completion_length
    return f"{UNITS[spec.objective]} over {protocol.recorded} whole cycles; a {longest}-token batch must fit first"


def _stops(budget: Budget, now: float, spent_wall_s: float) -> str:
    limits = []
    if budget.wall_s is not None:
        left = max(0.0, budget.wall_s - spent_wall_s)
        used = f", {format_duration(spent_wall_s)} of it used" if spent_wall_s >= 1 else ""
        at = clock_time(now + left, today=now)
        limits.append(f"at {at} at the latest ({format_duration(budget.wall_s)}{used}; + {GRACE_S:.0f} s grace)")
    if budget.max_trials is not None:
        limits.append(f"after {counted(budget.max_trials, 'trial')}")
    if budget.gpu_hours is not None:
        limits.append(f"after {budget.gpu_hours:g} GPU-hours")
    return " or ".join(limits) or "when every legal combination has been tried, or at Ctrl-C"


def end_screen(
    reading: StudyReading,
    *,
    ended_by: str,
    next_command: str = "",
    run: Sequence[str] = (),
    places: Mapping[str, str] | None = None,
    whole: bool = False,
) -> RenderableType:
    """Draws the recommendation, its evidence, and last the next command, in 20 lines of 80 columns.

    ``ended_by`` is a sentence on the limit that ended the study, ``run`` describes the user's whole run, ``places``
    are files. ``whole`` removes the limit of 20 lines, and adds lengths, every note, and the bound on the speed.
    """
    grid, recommendation, baseline = LabelGrid(), reading.recommendation, reading.study.spec.baseline
    notes = () if recommendation is None else recommendation.notes
    if recommendation is None or not recommendation.rows:
        _add_failure(grid, reading.trials)
    else:
        first, *others = recommendation.rows
        grid.add("result", headline(first, recommendation, baseline), "bold")
        _add_row(grid, first, reading, whole=whole)
        for row in others:
            gained = "" if row.gain is None else f": {row_gain_words(row)}"
            grid.add("also", row.title if whole else _cut(f"{row.title}{gained}", 2))
            if whole:
                _add_row(grid, row, reading, whole=True)
        grid.block("your run", run)
    for note in notes[: None if whole else 1]:
        more = "" if whole or len(notes) == 1 else f" (+{len(notes) - 1}: --why)"
        grid.add("doubt", (note if whole else _cut(note, 2)) + more)
    if recommendation is not None and (whole or recommendation.baseline != "ok"):
        grid.add("baseline", baseline_words(recommendation, baseline))
    spent = f", {format_duration(reading.spent[0])} used" if reading.spent[0] else ""
    grid.add("ended", f"{clean(ended_by)}; {count(reading.trials).sentence()}{spent}")
    for name, path in (places or {}).items():
        grid.add(fit(name, LABEL_WIDTH - 1), path)
    if next_command:
        alone = evidence.feasible(reading.trials).keys() == {baseline}
        grid.add("next", "the same command with a larger --budget" if alone else next_command, "bold")
    return grid.table


def _cut(text: str, lines: int = 1) -> str:
    return fit(text, lines * TEXT_WIDTH - (lines - 1) * 8)  # words are not broken between lines


def _add_row(grid: LabelGrid, row: RecommendationRow, reading: StudyReading, *, whole: bool) -> None:
    gain = f"{row_gain_words(row)} over {over(reading.recommendation)}; " if row.gain and reading.recommendation else ""
    sure = f"{gain}{evidence_words(row)}"
    grid.add("sure", sure if whole else _cut(sure, 3))
    runs = () if reading.reference is None else evidence.feasible(reading.trials)[reading.reference]
    before = evidence.speed(runs) if runs else None
    instead = "" if before is None or row.gain is None else f", instead of {rate(before, row.low, row.high)}"
    grid.add("tokens/hour", speed_words(row, instead))
    if speed := roof_words(reading.study, reading.fingerprint, reading.trials, row):
        grid.add("speed", speed)
    _add_changes(grid, row, reading, None if whole else 7)
    worth = sorted(row.phase_shares.items(), key=lambda item: -item[1])[:5]
    grid.add("time", ", ".join(f"{clean(n)} {percent(share)}" for n, share in worth if share >= SMALLEST_SHARE) or "-")
    grid.add("memory", memory_words(row))
    if whole:
        grid.add("lengths", lengths_words(row))
        grid.add("bound by", row.limit)


def _add_changes(grid: LabelGrid, row: RecommendationRow, reading: StudyReading, most: int | None) -> None:
    """Adds a line per changed knob, with its share of the gain; knobs that always changed together share one figure."""
    from autotune.statistics.knob_shares import knob_shares

    baseline = reading.study.spec.baseline
    changed, shares = changes(row.configuration, baseline), knob_shares(reading.trials, baseline, row.configuration)
    parts = {knob: share for share in (shares.shares if shares else ()) for knob in share.knobs}
    width = max((len(name) for name, _, _ in changed), default=0)
    for place, (name, old, new) in enumerate(changed[:most]):
        part = parts.get(name)
        group, share = (part.knobs, range_words(part)) if part else ((), "")
        if len(group) > 1:  # their gain is one figure, not one for each
            first = next(knob for knob, _, _ in changed if knob in group) == name
            share = f"{len(group)} together {share.partition(' (')[0]}" if first else f"one of the {len(group)}"
        grid.add("" if place else "change", Text(_cut(f"{name:<{width}}  {old} → {new}  {share}".rstrip()), "green"))
    if most is not None and len(changed) > most:
        grid.add("", f"and {len(changed) - most} more: --why")


def _add_failure(grid: LabelGrid, trials: Sequence[Trial]) -> None:
    grid.add("result", nothing_words(trials), "bold red")
    if ran := sum(t.emulated and t.feasible for t in trials):
        grid.add("note", f"FP8 was emulated in every trial that held ({ran}); such a trial is never recommended.")
    groups = failure_groups(t for t in trials if t.outcome is not None)
    for alike in sorted(groups, key=len, reverse=True)[:SUGGESTIONS]:
        sentence = "" if alike[0].outcome is None else alike[0].outcome.sentence()
        grid.add("cause", f"{sentence} ({len(alike)} of {sum(map(len, groups))} failures)")
        if suggestion := advice(alike[0], trials):
            grid.add("hint", suggestion)


MOST_LINES = 12
MOST_RULED = 8


def why_screen(why: Why) -> RenderableType:
    """Shows a block for each row of the recommendation, then the ruled-out configurations."""
    grid = LabelGrid()
    grid.gap()
    for row in why.rows:
        if len(why.rows) > 1:
            grid.add("why", row.title, "bold")
        _add_reasons(grid, row)
    grid.block("began with", why.began)
    _add_ruled(grid, why)
    return grid.table


def _add_reasons(grid: LabelGrid, row: RowReasons) -> None:
    grid.block("no further", row.limits[1:])
    lines = knob_lines(row)
    grid.block("each knob", lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        grid.add("", f"{len(lines) - MOST_LINES} more in --json")


def _add_ruled(grid: LabelGrid, why: Why) -> None:
    about = "" if why.exact else "about "
    space = f"{about}{why.combinations:,} combinations, {about}{why.legal:,} legal, {why.tried:,} run"
    if not why.ruled_out:
        grid.add("space", space)
        return
    grid.add("ruled out", f"{space}; what ruled out others, with overlaps:")
    grid.block("", map(ruled_words, why.ruled_out[:MOST_RULED]))
    more = len(why.ruled_out) - MOST_RULED
    if more > 0:
        grid.add("", f"{more} more in --json")
