"""Tokens/hour of every trial in the order they ran, as an SVG; no library, no script, no text of others."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, Trial, TrialKind, TrialState
from autotune.statistics import evidence
from autotune.wording.numbers import rate

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 20, 40

_COLOURS = {
    TrialKind.BASELINE: "#1f77b4",
    TrialKind.SEARCH: "#7f7f7f",
    TrialKind.CONFIRM: "#2ca02c",
    TrialKind.VERIFY: "#9467bd",
}


def plot(trials: Sequence[Trial], baseline: Configuration) -> str:
    """Dots by kind, bounds as open ones with an arrow, failures as crosses at the bottom, the reference as a line."""
    top = 1.1 * max((t.tokens_per_hour or t.at_most or 0.0 for t in trials), default=0.0) or 1.0
    last = max((t.number for t in trials), default=0)
    parts = [*_axes(top, last), *_line(trials, baseline, top)]
    parts += [_mark(t, top, last) for t in sorted(trials, key=lambda t: t.number) if t.state.is_finished]
    body = "\n".join(part for part in [*parts, *_legend(trials)] if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="11">\n<title>tokens/hour of every trial</title>\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )


def _x(number: int, last: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (number + 0.5) / (last + 1)


def _y(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{text}</text>'


def _axes(top: float, last: int) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, rate(value), "end"))
    every = max(1, (last + 1) // 12)
    parts += [_text(_x(n, last), HEIGHT - BOTTOM + 16, str(n)) for n in range(0, last + 1, every)]
    return [*parts, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "trial")]


def _line(trials: Sequence[Trial], baseline: Configuration, top: float) -> list[str]:
    anchor = evidence.reference(trials, baseline)
    if anchor is None:
        return []
    y = _y(evidence.speed(evidence.feasible(trials)[anchor.configuration]), top)
    return [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#1f77b4" stroke-dasharray="4"/>']


def _mark(trial: Trial, top: float, last: int) -> str:
    x, colour = _x(trial.number, last), _COLOURS[trial.kind]
    if trial.at_most is not None:  # an open mark with an arrow down: it lies somewhere below
        y = _y(trial.at_most, top)
        arrow = f"M{x:.1f} {y + 4:.1f}v8m-3 -3l3 3l3 -3"
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="none" stroke="{colour}"/>'
            f'<path d="{arrow}" stroke="{colour}" fill="none"/>'
        )
    if trial.state is TrialState.FAIL or trial.tokens_per_hour is None:
        y = _y(0.0, top) - 6
        path = f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"
        return f'<path d="{path}" stroke="#d62728" stroke-width="2" fill="none"/>'
    return f'<circle cx="{x:.1f}" cy="{_y(trial.tokens_per_hour, top):.1f}" r="4" fill="{colour}"/>'


def _legend(trials: Sequence[Trial]) -> list[str]:
    parts, x = [], float(LEFT)
    for kind, colour in _COLOURS.items():
        if any(t.kind is kind for t in trials):
            parts.append(f'<circle cx="{x + 5:.0f}" cy="10" r="4" fill="{colour}"/>')
            parts.append(_text(x + 13, 14, kind.value.replace("_", " "), "start"))
            x += 85
    return parts
