"""Seconds of computing of each test, its fixtures included: printed by file, and bounded in the unit lane.

They are of this process, and of those it started that have ended; a busy machine changes them little.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

MOST_S = 60.0
"""Of a unit test, as `make test-unit` is to take minutes; four times what the longest takes on a busy machine."""
SHOWN = 15
"""Files."""
BEGAN = pytest.StashKey[float]()


def computed() -> float:
    """Seconds until now."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGAN] = computed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """The report of what ends a test says what it took; one of the unit lane that took too much fails."""
    report = yield
    if call.when == "teardown":
        report.computed = computed() - item.stash.get(BEGAN, computed())
        if report.computed > MOST_S and report.passed and item.get_closest_marker("unit") is not None:
            report.outcome = "failed"
            report.longrepr = f"{report.computed:.0f} s of computing: make it shorter, or give it to another lane"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    by_file: Counter[str] = Counter()
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if hasattr(report, "computed"):
            by_file[report.nodeid.partition("::")[0]] += report.computed
    if by_file.total() > 0:
        terminalreporter.section(f"{by_file.total():.0f} s of computing, most of it by")
        for file, seconds in by_file.most_common(SHOWN):
            terminalreporter.line(f"{seconds:8.1f} s {file}")
