"""Text can be read in both themes, and phases be told apart by who sees red, green or blue badly."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from autotune.charts.assets import STYLE
from autotune.domain import Phase

PAGE = (Path(__file__).resolve().parents[2] / "api/dashboard/assets/page.css").read_text(encoding="utf-8")
CHARTS = STYLE.read_text(encoding="utf-8")
THEMES = ("light", "dark")
READABLE = 4.5
"""Contrast of small text (WCAG 2.2, success criterion 1.4.3)."""
GRAPHICS = 3.0
"""Contrast of what a drawing consists of (success criterion 1.4.11)."""
APART = 10.0
"""CIELAB distance: a difference that is seen at a glance."""
TEXTS = ("ink", "soft", "accent", "good", "bad", "warn", "now")
GROUNDS = ("ground", "paper")
ON_THEIR_OWN = ("accent", "bad", "warn", "now")

Rgb = tuple[float, float, float]

DICHROMATS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}
"""Of linear RGB, at full severity (Machado, Oliveira and Fernandes, IEEE TVCG 15, 2009)."""


def colours(style: str, theme: str) -> dict[str, Rgb]:
    """The custom properties of a style sheet that are colours."""
    found = {}
    for name, value in re.findall(r"--([\w-]+): (light-dark\([^)]*\)|#[0-9a-f]{6})", style):
        each = re.findall(r"#[0-9a-f]{6}", value)
        found[name] = linear(each[THEMES.index(theme) % len(each)])
    return found


def linear(colour: str) -> Rgb:
    """Linear light of ``#rrggbb``."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def luminance(colour: Rgb) -> float:
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def contrast(one: Rgb, other: Rgb) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(colour: Rgb) -> Rgb:
    """CIELAB, D65."""
    red, green, blue = colour
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (max(0.0, v) ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen_by(colour: Rgb, matrix: tuple[Rgb, Rgb, Rgb]) -> Rgb:
    red, green, blue = (min(1.0, max(0.0, sum(m * c for m, c in zip(row, colour, strict=True)))) for row in matrix)
    return red, green, blue


@pytest.mark.parametrize("theme", THEMES)
def test_text_can_be_read(theme: str) -> None:
    known = colours(PAGE, theme)
    pairs = [*itertools.product(TEXTS, GROUNDS), *((name, f"{name}-soft") for name in ON_THEIR_OWN)]
    for text, ground in pairs:
        found = contrast(known[text], known[ground])
        assert found >= READABLE, f"{text} on {ground}, {theme}: {found:.2f}"


@pytest.mark.parametrize("theme", THEMES)
def test_marks_of_charts_can_be_seen_on_the_paper(theme: str) -> None:
    paper = colours(PAGE, theme)["paper"]
    known = {name: contrast(colour, paper) for name, colour in colours(CHARTS, theme).items()}
    assert set(known) >= {phase.value for phase in Phase}
    assert {name: found for name, found in known.items() if found < GRAPHICS} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eyes", [None, *DICHROMATS])
def test_phases_are_told_apart(theme: str, eyes: str | None) -> None:
    """Beside each other in a bar; each is named by its legend, its words and its row of the table too."""
    known = colours(CHARTS, theme)
    shown = {name: known[name] for name in (*(phase.value for phase in Phase), "other")}
    if eyes is not None:
        shown = {name: seen_by(colour, DICHROMATS[eyes]) for name, colour in shown.items()}
    for (one, a), (other, b) in itertools.combinations(shown.items(), 2):
        apart = sum((p - q) ** 2 for p, q in zip(lab(a), lab(b), strict=True)) ** 0.5
        assert apart >= APART, f"{one} and {other}, {theme}, {eyes}: {apart:.1f}"
