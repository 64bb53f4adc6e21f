"""The style sheet of the charts: the page links to it, and a report contains it."""

from pathlib import Path

STYLE = Path(__file__).parent / "charts.css"
