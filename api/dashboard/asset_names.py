"""Names of all files that the pages load."""

from __future__ import annotations

from autotune.charts.assets import STYLE

LOGIN_ASSETS = frozenset({"page.css", "theme.js", "icon.svg"})
"""Files of the login page, the only ones served without a token."""
ASSETS = LOGIN_ASSETS | {"live.js", "copy.js", "marks.js", STYLE.name}
