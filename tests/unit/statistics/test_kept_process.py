"""Which search trial has the process of the one before it, by what the starts have shown."""

from __future__ import annotations

import pytest

from autotune.domain import Trial
from autotune.statistics.kept_process import processes_go_on
from tests.support import factories as f


def ran(starts: str) -> list[Trial]:
    """Trials by their starts: ``n`` in a new process, ``k`` in that of the one before."""
    return [
        f.finished(number).with_(startup={"spawn": 1.0, "import": 20.0} if how == "n" else {"load": 1.0})
        for number, how in enumerate(starts)
    ]


@pytest.mark.parametrize(
    ("starts", "goes_on"),
    [
        ("n", True),
        ("nkk", True),
        ("nn", False),
        ("nnn", False),
        ("nkkn", True),
        ("nkknk", True),
        ("nkknkk", False),
        ("nkknkkk", True),
        ("nkknn", False),
    ],
)
def test_a_process_serves_as_many_trials_as_the_one_before_it_that_was_replaced(starts: str, goes_on: bool) -> None:
    assert processes_go_on(ran(starts)) is goes_on
