"""Chart of every trial's tokens/hour in the order they ran, with the best so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, Mark, bottom_axis, drawing, empty, left_axis, nowhere
from autotune.charts.scales import Scale, linear
from autotune.charts.svg import Svg, group, label, line, linked, path, tag
from autotune.domain import StudySpec, Trial, TrialState
from autotune.insights.standings import outcome_word
from autotune.statistics import evidence, retries
from autotune.wording.numbers import counted, rate, signed_percent
from autotune.wording.sentences import measured_words

NAME, TITLE = "history", "Tokens/hour, trial by trial"
HEIGHT = 320.0
FRAME = Frame(left=74.0, right=846.0, top=26.0, bottom=262.0)
MOST_MARKS = 300
"""Most marks of the chart; if there are more trials, adjacent ones share a mark."""
STRIP = 14.0
"""Height of the strip of failures, below zero."""

LEGEND = (
    Mark("many", "measured, neighbours together", "┃"),
    Mark("ok", "measured", "●"),
    Mark("other", "measured, of other numerics or another update, or emulated", "◆"),
    Mark("bound", "stopped early: reaches this at most", "○"),
    Mark("bad", "failed", "✕"),
    Mark("now", "runs", "▶"),
    Mark("best", "best so far with the same numerics", "━"),
    Mark("anchor", "what gains are stated over", "┅"),
)


@dataclass(frozen=True)
class Step:
    """A trial that is faster than all earlier ones and learns as the baseline does."""

    number: int
    tokens_per_hour: float


def steps(trials: Sequence[Trial], spec: StudySpec) -> tuple[Step, ...]:
    """Returns the trials that were the best so far, ordered by number; omits failures and emulated FP8."""
    found: list[Step] = []
    for trial in sorted(trials, key=lambda t: t.number):
        speed = trial.tokens_per_hour
        if not trial.feasible or trial.emulated or not speed or (found and speed <= found[-1].tokens_per_hour):
            continue
        if evidence.same_learning(trial.configuration, spec.baseline, spec.framework):
            found.append(Step(trial.number, speed))
    return tuple(found)


def history(trials: Sequence[Trial], spec: StudySpec, href: Href = nowhere) -> Chart:
    """Draws the chart; ``href`` gives the link from a mark to its trial."""
    shown = sorted((t for t in trials if t.state is not TrialState.WAITING), key=lambda t: t.number)
    best = steps(shown, spec)
    heights = [v for t in shown if (v := t.tokens_per_hour or t.at_most)]
    if not heights:
        return empty(NAME, TITLE, _says(shown, best) if shown else "No trial has been started.")
    across = Scale(-0.5, shown[-1].number + 0.5, FRAME.left, FRAME.right)
    up = linear(heights, FRAME.bottom - STRIP, FRAME.top)
    says = _says(shown, best)
    parts = [
        left_axis(FRAME, up, rate, "tokens/hour"),
        bottom_axis(FRAME, across, _whole, "trial"),
        *_anchor(trials, spec, up),
        *_line(best, across, up),
        *_marks(shown, spec, across, up, href),
    ]
    return Chart(
        NAME,
        TITLE,
        says,
        drawing(HEIGHT, parts, says, NAME),
        ("trial", "best so far, tokens/hour", "over the step before"),
        _rows(best),
        _legend(shown, spec, best),
        note="Every trial is in the table of trials." if len(shown) > len(best) else "",
    )


def _says(trials: Sequence[Trial], best: Sequence[Step]) -> str:
    if not best:
        judged = any(retries.decided(t) for t in trials)
        return f"{counted(len(trials), 'trial')}; {'none is feasible so far' if judged else 'nothing is measured yet'}."
    last = best[-1]
    found = f", found in {len(best)} steps" if len(best) > 1 else ""
    return (
        f"{counted(len(trials), 'trial')}; the best so far is #{last.number} with {rate(last.tokens_per_hour)} "
        f"tokens/hour{found}."
    )


def _rows(best: Sequence[Step]) -> tuple[tuple[str, ...], ...]:
    before = [None, *best]
    return tuple(
        (
            f"#{now.number}",
            rate(now.tokens_per_hour),
            "" if then is None else signed_percent(now.tokens_per_hour / then.tokens_per_hour - 1),
        )
        for then, now in zip(before, best, strict=False)
    )


def _whole(value: float) -> str:
    return f"{value:.0f}" if abs(value - round(value)) < 1e-6 else ""


def _corners(best: Sequence[Step], across: Scale) -> list[tuple[float, float]]:
    """Returns the points (x, tokens/hour) of a step line that rises at each of ``best``."""
    found: list[tuple[float, float]] = []
    for step in best:
        x = across.at(step.number)
        if found:
            found.append((x, found[-1][1]))
        found.append((x, step.tokens_per_hour))
    return [*found, (FRAME.right, found[-1][1])] if found else []


def _line(best: Sequence[Step], across: Scale, up: Scale) -> list[str]:
    corners = [(x, up.at(v)) for x, v in _corners(best, across)]
    return [tag("path", d=path(corners), class_="best")] if corners else []


def _anchor(trials: Sequence[Trial], spec: StudySpec, up: Scale) -> list[str]:
    anchor = evidence.reference(trials, spec.baseline)
    if anchor is None:
        return []
    y = up.at(evidence.speed(evidence.feasible(trials)[anchor.configuration]))
    name = "baseline" if anchor.configuration == spec.baseline else f"reference #{anchor.number}"
    return [line(FRAME.left, y, FRAME.right, y, "anchor"), label(FRAME.right - 4, y - 5, name, "tick", "end")]


def _marks(trials: Sequence[Trial], spec: StudySpec, across: Scale, up: Scale, href: Href) -> list[str]:
    if len(trials) <= MOST_MARKS:
        return [_mark(t, spec, across, up, href) for t in trials]
    each = math.ceil(len(trials) / MOST_MARKS)
    return [_column(trials[i : i + each], across, up) for i in range(0, len(trials), each)]


def style_of(trial: Trial, spec: StudySpec) -> str:
    """Returns the class of a trial's mark in the legend."""
    if trial.state is TrialState.FAIL:
        return "bad"
    if trial.state in (TrialState.RUNNING, TrialState.WAITING):
        return "now"
    if trial.at_most is not None:
        return "bound"
    same = not trial.emulated and evidence.same_learning(trial.configuration, spec.baseline, spec.framework)
    return "ok" if same and trial.tokens_per_hour else "other" if trial.tokens_per_hour else "bad"


def _mark(trial: Trial, spec: StudySpec, across: Scale, up: Scale, href: Href) -> Svg:
    style, x = style_of(trial, spec), across.at(trial.number)
    speed = trial.at_most or trial.tokens_per_hour
    speed = speed if speed is not None and math.isfinite(speed) else None
    low = FRAME.bottom - STRIP / 2 + 2
    y = up.at(speed) if speed and style in ("ok", "other", "bound") else low
    words = outcome_word(trial) if not speed else f"{measured_words(trial)} tokens/hour, {outcome_word(trial)}"
    return linked(shape(style, x, y), href(trial.number), f"#{trial.number} {trial.kind.value}: {words}")


def shape(style: str, x: float, y: float) -> Svg:
    """Draws a mark that differs from others by shape and not only by colour."""
    if style == "bad":
        return tag("path", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0-8l-8 8", class_="point bad")
    if style == "bound":
        arrow = tag("path", d=f"M{x:.1f} {y + 4:.1f}v8m-3-3l3 3l3-3", class_="point bound")
        return group([tag("circle", cx=x, cy=y, r=4, class_="point bound"), arrow])
    if style == "other":
        return tag("path", d=f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5-5z", class_="point other")
    if style == "now":
        return tag("path", d=f"M{x - 4:.1f} {y - 5:.1f}l8 5l-8 5z", class_="point now")
    return tag("circle", cx=x, cy=y, r=4, class_=f"point {style}")


def _column(trials: Sequence[Trial], across: Scale, up: Scale) -> Svg:
    """Draws adjacent trials as one mark, from the slowest to the fastest, with a tick below if some failed."""
    speeds = [s for t in trials if t.feasible and (s := t.tokens_per_hour)]
    failed = sum(t.state is TrialState.FAIL for t in trials)
    x = (across.at(trials[0].number) + across.at(trials[-1].number)) / 2
    parts: list[str] = []
    if speeds:
        parts.append(line(x, up.at(min(speeds)) + 1, x, up.at(max(speeds)) - 1, "point many"))
    if failed:
        parts.append(line(x, FRAME.bottom - STRIP + 3, x, FRAME.bottom - 1, "point bad"))
    span = f"{rate(min(speeds))} to {rate(max(speeds))} tokens/hour; " if speeds else ""
    words = f"#{trials[0].number} to #{trials[-1].number}: {span}{len(speeds)} measured, {failed} failed"
    return linked(group(parts), "", words)


def _legend(trials: Sequence[Trial], spec: StudySpec, best: Sequence[Step]) -> tuple[Mark, ...]:
    seen = {"many", "bad"} if len(trials) > MOST_MARKS else {style_of(t, spec) for t in trials}
    seen |= {"best", "anchor"} if best else set()
    return tuple(m for m in LEGEND if m.style in seen)
