"""Shares as bars from the left: how much each knob explains, and how much of what is computed is of use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, bottom_axis, drawing, empty, nowhere
from autotune.charts.chosen import chosen, name_of
from autotune.charts.scales import Bands, Scale
from autotune.charts.svg import Svg, group, label, linked, tag
from autotune.domain import Configuration, Trial
from autotune.insights.importance import Importance
from autotune.wording.numbers import rate
from autotune.wording.text import knob_value

ROW = 24.0
MOST_KNOBS = 16
SHOWN_MEANS = 6
LEAST_SHARE = 0.005
"""Where no knob explains as much, there is nothing to draw."""


@dataclass(frozen=True)
class Share:
    """A bar; ``share`` is 0 to 1."""

    name: str
    share: float
    words: str
    number: int | None = None


def importance_chart(found: Importance) -> Chart:
    """What each knob explains of the difference in speed; its note says when trials are too few."""
    title = "What each knob explains of the difference in speed"
    if not found.influences:
        return empty("importance", title, found.note or "No knob differs between measured configurations.")
    if found.influences[0].share < LEAST_SHARE:
        why = f"{found.trials} configurations do not tell yet which knob explains the difference in speed."
        return empty("importance", title, why)
    shown = found.influences[:MOST_KNOBS]
    shares = [Share(i.knob, i.share, f"{i.share:.0%} of the variance of log tokens/hour") for i in shown]
    rows = tuple(
        (
            i.knob,
            f"{i.share:.0%}",
            ", ".join(f"{knob_value(v)}: {rate(m)}" for v, m in list(i.means.items())[:SHOWN_MEANS]),
        )
        for i in shown
    )
    care = f"Read it with care: {found.note}. " if found.note else ""
    note = f"{care}One knob at a time, over {found.trials} configurations; knobs tried together are not told apart."
    says = f"{shown[0].knob} explains most, {shown[0].share:.0%}."
    return _bars("importance", title, says, shares, ("knob", "share", "mean tokens/hour by value"), rows, note)


def useful_share(trials: Sequence[Trial], baseline: Configuration, href: Href = nowhere) -> Chart:
    """Share of the tokens in the update's forward passes that are not padding."""
    title = "Useful share: tokens that are no padding"
    shares = []
    for trial in chosen(trials, baseline):
        known = [s for c in trial.speed_cycles() if (s := c.useful_share) is not None]
        if known:
            mean = min(1.0, max(0.0, statistics.fmean(known)))
            words = f"{mean:.0%} of the tokens computed are of use"
            shares.append(Share(name_of(trial, baseline), mean, words, trial.number))
    if not shares:
        return empty("useful", title, "No cycle said how many tokens it worked on.")
    low, high = min(s.share for s in shares), max(s.share for s in shares)
    span = f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"Between {low:.0%} and {high:.0%}"
    says = f"{span} of the tokens computed are of use."
    rows = tuple((s.name, f"{s.share:.1%}") for s in shares)
    return _bars("useful", title, says, shares, ("trial", "useful share"), rows, "", href)


def _bars(
    name: str,
    title: str,
    says: str,
    shares: Sequence[Share],
    heads: tuple[str, ...],
    rows: tuple[tuple[str, ...], ...],
    note: str,
    href: Href = nowhere,
) -> Chart:
    frame = Frame(230.0, 800.0, 6.0, 6.0 + ROW * len(shares))
    lines = Bands(len(shares), frame.top, frame.bottom)
    across = Scale(0.0, 1.0, frame.left, frame.right)
    parts = [bottom_axis(frame, across, lambda v: f"{v:.0%}", "", 5)]
    parts += [_bar(s, lines.centre(i), across, href) for i, s in enumerate(shares)]
    return Chart(name, title, says, drawing(frame.bottom + 26, parts, says, name), heads, rows, (), note)


def _bar(share: Share, y: float, across: Scale, href: Href) -> Svg:
    end = across.at(share.share)
    box = tag("rect", x=across.start, y=y - 7, width=max(1.0, end - across.start), height=14, class_="share")
    said = label(across.start - 8, y + 4, share.name, "row-name", "end")
    where = href(share.number) if share.number is not None else ""
    return group(
        [
            linked(said, where, share.name) if where else said,
            linked(box, "", f"{share.name}: {share.words}"),
            label(end + 6, y + 4, f"{share.share:.0%}", "tick"),
        ]
    )
