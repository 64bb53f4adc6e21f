"""A study as one Markdown file; pure: the same study always gives the same text."""

from autotune.report.document import Material, report
from autotune.report.plot import plot

__all__ = ["Material", "plot", "report"]
