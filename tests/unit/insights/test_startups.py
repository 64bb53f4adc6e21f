from __future__ import annotations

import pytest

from autotune.recommendation.reading import StudyReading
from autotune.report import report
from autotune.report.document import startups
from tests.support import factories as make
from tests.support.not_none import not_none


def test_parts_are_summed_in_the_order_they_come_in() -> None:
    trials = [
        make.finished(0, startup={"load": 2.0, "import": 4.0, "spawn": 1.0}, seconds=20.0),
        make.finished(1, startup={"import": 0.0, "spawn": 0.5, "odd": 0.5}, seconds=12.0),
        make.trial(2),
    ]
    found = not_none(startups(trials))
    assert (found.trials, found.wall) == (2, 32.0)
    assert list(found.parts.items()) == [("spawn", 1.5), ("import", 4.0), ("load", 2.0), ("odd", 0.5)]
    assert found.share == pytest.approx(8 / 32)
    said = report(StudyReading(make.study(), tuple(trials), (0.0, 0.0)))
    assert "Starting up took 25 % of 2 trials' time; in the mean of a trial: spawn 750 ms, import 2.0 s, load" in said


def test_nothing_is_said_of_what_nobody_told() -> None:
    assert startups([make.trial(0)]) is None
