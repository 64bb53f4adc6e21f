"""Findings of ``autotune doctor``, their screen and their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.documents.study import fields_json, plain
from autotune.wording.text import clean


class Verdict(StrEnum):
    """Meaning of a finding for a study."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    """No study can run."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    verdict: Verdict
    detail: str
    command: str = ""
    """Command that fixes the finding; empty if there is nothing to fix."""


def _finding(verdict: Verdict, name: str, detail: str, command: str = "") -> Finding:
    return Finding(name, verdict, detail, command)


ok, warning, problem = (partial(_finding, verdict) for verdict in Verdict)
"""Make a finding of a name, a detail and a command."""


def blocking(findings: Sequence[Finding]) -> bool:
    """Tells whether a finding prevents a study."""
    return any(finding.verdict is Verdict.PROBLEM for finding in findings)


def finding_json(finding: Finding) -> dict[str, Any]:
    """Converts a finding to JSON; ``command`` is null if there is nothing to fix."""
    return {**fields_json(finding), "command": plain(finding.command) or None}


def doctor_screen(findings: Sequence[Finding], *, on_paper: bool = False) -> RenderableType:
    """Shows a line for each finding, with its remedy, and the verdict; ``on_paper``: on a configuration alone."""
    styles = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for finding in findings:
        verdict = Text(finding.verdict.value, styles[finding.verdict])
        table.add_row(Text(finding.name, "bold"), verdict, Text(clean(finding.detail)))
        if finding.command:
            table.add_row("", "", Text(f"$ {clean(finding.command)}", "cyan"))
    return Group(table, Text(), Text(_end(findings, on_paper), "bold"))


def _end(findings: Sequence[Finding], on_paper: bool) -> str:
    if blocking(findings):
        return "The configuration has faults." if on_paper else "No study can run here yet."
    warnings = sum(finding.verdict is Verdict.WARNING for finding in findings)
    noted = f"; {warnings} warning{'s' if warnings > 1 else ''} above" if warnings else ""
    return f"{'No fault found; only the configuration was checked' if on_paper else 'A study can run here'}{noted}."
