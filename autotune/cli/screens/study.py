"""The plan before the first trial and the screen at the end; pure functions from values to renderables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.cli.screens.bars import phase_lines
from autotune.cli.screens.grid import LABEL_WIDTH, LabelGrid
from autotune.cli.screens.text import clock_time, fit
from autotune.domain import (
    Budget,
    Configuration,
    Protocol,
    Recommendation,
    RecommendationRow,
    Study,
    StudySpec,
    Trial,
    TrialState,
)
from autotune.insights.standings import count
from autotune.study.budget import GRACE_S
from autotune.wording.numbers import format_duration, format_size
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
from autotune.wording.text import changes, clean, in_order, knob_value, short_name

SUGGESTIONS = 3


def plan_screen(
    spec: StudySpec,
    budget: Budget,
    *,
    legal: int,
    same_learning: int,
    now: float,
    spent_wall_s: float = 0.0,
    scaling: Sequence[str] = (),
    workload: str = "",
) -> RenderableType:
    """The plan in five lines: model, baseline, combinations, what is measured, when it stops.

    Args:
        budget: of the whole study; ``spent_wall_s`` of it is used already.
        same_learning: those among them that change neither rounding nor learning.
        now: UTC seconds since the epoch.
        spent_wall_s: wall seconds earlier runs of this study used.
        scaling: of a published baseline, what it is and what was changed of it; shown whole under the lines.
        workload: which size was chosen for the budget and why; shown whole under the lines.
    """
    lines = {
        "model": _model(spec),
        "baseline": _baseline(spec),
        "space": f"{legal:,} legal combinations; {same_learning:,} of them only change speed and memory",
        "measured": _measured(spec.protocol, spec),
        "stops": _stops(budget, now, spent_wall_s),
    }
    labelled = [("published" if not i else "", sentence) for i, sentence in enumerate(scaling)]
    labelled += [("workload", workload)] if workload else []
    table = Table.grid(padding=0)
    table.add_column(width=LABEL_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    for label, sentence in labelled:
        table.add_row(Text(label, "bold"), Text(clean(sentence)))
    return Group(
        *(
            Text.assemble((f"{label:<{LABEL_WIDTH}}", "bold"), clean(text), no_wrap=True, overflow="ellipsis")
            for label, text in lines.items()
        ),
        *([table] if labelled else []),
    )


def _model(spec: StudySpec) -> str:
    limit = f", memory limit {format_size(spec.memory_limit)}" if spec.memory_limit else ""
    name = fit(model_name(spec.workload.model), 36)
    return f"{name} · {spec.framework} · {machine_words(spec.resources)}{limit}"


def _baseline(spec: StudySpec) -> str:
    names = in_order(spec.baseline)
    knobs = ", ".join(f"{short_name(name)} {knob_value(spec.baseline[name])}" for name in names)
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
        limits.append(f"after {budget.max_trials} trials")
    if budget.gpu_hours is not None:
        limits.append(f"after {budget.gpu_hours:g} GPU-hours")
    return " or ".join(limits) or "when every legal combination has been tried, or at Ctrl-C"


def end_screen(
    recommendation: Recommendation | None,
    study: Study,
    trials: Sequence[Trial],
    *,
    ended_by: str,
    spent_wall_s: float | None = None,
    files: Mapping[str, str | Path] | None = None,
    next_command: str = "",
) -> RenderableType:
    """What the study found, how sure it is, what limits it, and what to do next.

    Args:
        recommendation: ``None`` when no configuration was feasible.
        ended_by: the sentence of the limit that ended it.
        spent_wall_s: wall seconds of all runs, if known.
        files: what was written, by what it is.
    """
    grid = LabelGrid()
    if recommendation is None or not recommendation.rows:
        _add_failure(grid, trials)
    else:
        _add_rows(grid, recommendation, study.spec.baseline)
    grid.gap()
    if recommendation is not None:
        grid.add("baseline", baseline_words(recommendation, study.spec.baseline))
        for note in recommendation.notes:
            grid.add("note", note)
    used = "" if spent_wall_s is None else f", {format_duration(spent_wall_s)} used"
    grid.add("ended", f"{clean(ended_by)}; {count(trials).sentence()}{used}")
    for name, path in (files or {}).items():
        grid.add(fit(name, LABEL_WIDTH - 1), str(path))
    if next_command:
        grid.add("next", next_command, "bold")
    return grid.table


def _add_failure(grid: LabelGrid, trials: Sequence[Trial]) -> None:
    grid.add("result", nothing_words(trials), "bold red")
    ran = sum(t.emulated and t.feasible for t in trials)
    if ran:
        grid.add("note", f"FP8 was emulated in every trial that held ({ran}); such a trial is never recommended.")
    failed = [t for t in trials if t.state is TrialState.FAIL and t.outcome is not None]
    seen: dict[str, tuple[str, int]] = {}
    for trial in failed:
        if trial.outcome is not None:
            sentence, times = trial.outcome.sentence(), seen.get(trial.outcome.sentence(), ("", 0))[1]
            seen[sentence] = (trial.outcome.suggestion, times + 1)
    ranked = sorted(seen.items(), key=lambda item: -item[1][1])[:SUGGESTIONS]
    for sentence, (suggestion, times) in ranked:
        grid.add("cause", f"{sentence} ({times} of {len(failed)} failures)")
        if suggestion:
            grid.add("hint", suggestion)


def _add_rows(grid: LabelGrid, recommendation: Recommendation, baseline: Configuration) -> None:
    first, *others = recommendation.rows
    grid.add("result", headline(first, recommendation, baseline), "bold")
    _add_row(grid, first, recommendation, baseline)
    for row in others:
        grid.gap()
        grid.add("also", row.title, "bold")
        _add_row(grid, row, recommendation, baseline)


def _add_row(grid: LabelGrid, row: RecommendationRow, recommendation: Recommendation, baseline: Configuration) -> None:
    changed = changes(row.configuration, baseline)
    name_width = max((len(name) for name, _, _ in changed), default=0)
    for place, (name, before, after) in enumerate(changed):
        grid.add("" if place else "change", Text(f"{name:<{name_width}}  {before} → {after}", "green"))
    grid.add("tokens/hour", speed_words(row))
    grid.add("lengths", lengths_words(row))
    if row.gain is not None:
        grid.add("gain", f"{row_gain_words(row)} over {over(recommendation)}")
    grid.add("evidence", evidence_words(row))
    if row.phase_shares:
        grid.add("time", phase_lines(row.phase_shares))
    grid.add("memory", memory_words(row))
    if row.limit:
        grid.add("limited by", row.limit)
