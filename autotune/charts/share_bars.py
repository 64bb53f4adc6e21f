"""Shares as bars: what each changed knob contributes, and how much of what is computed is of use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.charts.chart import Chart, Frame, Href, bottom_axis, drawing, empty, nowhere
from autotune.charts.chosen import chosen, name_of
from autotune.charts.scales import Bands, Scale, linear
from autotune.charts.svg import Svg, group, label, line, linked, tag
from autotune.domain import Configuration, Trial
from autotune.insights.why_words import WIDEST, range_words, share_words, summary_words
from autotune.statistics.knob_shares import KnobShares

ROW = 24.0


@dataclass(frozen=True)
class Share:
    """A bar; ``share`` is 0 to 1."""

    name: str
    share: float
    words: str
    number: int | None = None


def knob_chart(shares: KnobShares | None) -> Chart:
    """Draws the share of each changed knob in the first answer's gain, with its interval where that is of use."""
    title = "What each changed knob contributes"
    if shares is None:
        return empty("knobs", title, "No knob is changed, or what it was changed from has no figure.")
    narrow = [share for share in shares.shares if 1.0 + share.high <= WIDEST * (1.0 + share.low)]
    frame = Frame(230.0, 800.0, 6.0, 6.0 + ROW * max(1, len(narrow)))
    lines = Bands(len(narrow), frame.top, frame.bottom)
    across = linear([end for share in narrow for end in (share.low, share.high)], frame.left, frame.right)
    parts = [bottom_axis(frame, across, lambda v: f"{v:+.0%}", "", 5)]
    for place, share in enumerate(narrow):
        y, ends = lines.centre(place), sorted((across.at(0.0), across.at(share.value)))
        bar = tag("rect", x=ends[0], y=y - 7, width=max(1.0, ends[1] - ends[0]), height=14, class_="share")
        reach = line(across.at(share.low), y, across.at(share.high), y, "anchor")
        parts.append(linked(bar + reach, "", share_words(shares, share)))
        more = f" with {len(share.knobs) - 1} more" if share.knobs[1:] else ""
        parts.append(label(frame.left - 8, y + 4, share.knobs[0] + more, "row-name", "end"))
    says = f"{summary_words(shares).capitalize()}."
    rows = tuple((", ".join(share.knobs), range_words(share)) for share in shares.shares)
    drawn = drawing(frame.bottom + 26, parts, says, "knobs")
    return Chart("knobs", title, says, drawn, ("knob", "share"), rows, note="By one model; intervals are 95 % ones.")


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
