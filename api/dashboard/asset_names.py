"""The files the pages load, all of them; they show nothing of a study, so they are given without a token."""

from __future__ import annotations

from autotune.charts.assets import STYLE

ASSETS = frozenset({"page.css", "theme.js", "live.js", "copy.js", "marks.js", "icon.svg", STYLE.name})
