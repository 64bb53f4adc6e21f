"""A study as one Markdown file; pure: the same study always gives the same text."""

from autotune.report.document import report
