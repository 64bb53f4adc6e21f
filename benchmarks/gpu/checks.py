"""The GPU tests, a file at a time, so that they fit into slices."""

from __future__ import annotations

import importlib.util
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from autotune.machine.clock import SystemClock
from autotune.ports import StopToken
from autotune.running.command import BoundedCommand, run_command
from benchmarks.gpu.journal import Row

ROOT = Path(__file__).resolve().parents[2]
FIRST_S = 150.0
"""Wall seconds allowed for at the least before a file is started: each runs a few trials."""
MOST_MESSAGE = 300


@dataclass(frozen=True)
class Counted:
    """What a file's tests did, from pytest's own report."""

    passed: int
    failed: tuple[str, ...]
    skipped: tuple[str, ...]
    """Names with their reasons."""


def files() -> list[Path]:
    """The test files there are, in the order they are run."""
    return sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


def lacking() -> str | None:
    """Why the tests cannot be run here, or ``None``."""
    if not files():
        return "tests/gpu is not here: run from a checkout"
    return None if importlib.util.find_spec("pytest") else "pytest is not installed beside autotune"


def counted(report: Path) -> Counted:
    """A junit report read. Raises ``OSError`` or ``ElementTree.ParseError`` if there is none."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314  (pytest's own, just written)
        outcome = {child.tag: child for child in case}
        name = f"{case.get('name')}"
        bad = outcome.get("failure", outcome.get("error"))
        if bad is not None:  # an element without children is false
            failed.append(f"{name}: {bad.get('message', '')}"[:MOST_MESSAGE])
        elif (skip := outcome.get("skipped")) is not None:
            skipped.append(f"{name}: {skip.get('message', '')}"[:MOST_MESSAGE])
        else:
            passed += 1
    return Counted(passed, tuple(failed), tuple(skipped))


def run(path: Path, python: str, folder: Path, tag: str, deadline: float, stop: StopToken) -> tuple[Row, bool]:
    """(The row of one file, whether the time ran out before it ended)."""
    report = folder / f"{path.stem}.xml"
    report.unlink(missing_ok=True)
    argv = (
        *(sys.executable, "-m", "pytest", "-q", str(path), f"--junitxml={report}"),
        *("-p", "no:cacheprovider", "--override-ini=addopts="),
    )
    environment = {"AUTOTUNE_TEST_PYTHON": python}
    command = BoundedCommand(argv, ROOT, tag, folder / f"{path.stem}.log", deadline, environment)
    ended = run_command(command, lambda _: False, stop, clock=SystemClock())
    row: Row = {"file": path.name, "seconds": ended.seconds, "passed": 0, "failed": [], "skipped": []}
    if ended.stop is not None:
        return {**row, "failed": [f"{path.name}: {ended.why}"]}, True
    try:
        found = counted(report)
    except (OSError, ElementTree.ParseError):
        return {**row, "failed": [f"{path.name}: pytest ended with {ended.exit_code} and wrote no report"]}, False
    return {**row, "passed": found.passed, "failed": list(found.failed), "skipped": list(found.skipped)}, False
