"""Report on a study as one Markdown file. Pure: the same study always gives the same text."""

from autotune.report.document import report
