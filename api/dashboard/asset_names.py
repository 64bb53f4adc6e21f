"""The files the pages load, all of them."""

from __future__ import annotations

from autotune.charts.assets import STYLE

LOGIN_ASSETS = frozenset({"page.css", "theme.js", "icon.svg"})
"""What the login page loads; nothing else is given without a token."""
ASSETS = LOGIN_ASSETS | {"live.js", "copy.js", "marks.js", STYLE.name}
