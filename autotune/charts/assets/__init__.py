"""The style sheet of the charts: a file of the page, and written into a report."""

from pathlib import Path

STYLE = Path(__file__).parent / "charts.css"
