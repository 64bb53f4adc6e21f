"""The unit lane needs no training environment; a test of it that asks for one fails."""

from __future__ import annotations

import pytest

from tests.support.trl_trials import training_python


def test_a_test_that_is_not_marked_has_no_training_interpreter(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("unit") is not None
    with pytest.raises(AssertionError, match="mark it `trl`"):
        training_python()


@pytest.mark.slow
@pytest.mark.parametrize("also", [(), pytest.param((), marks=pytest.mark.full)])
def test_what_is_marked_is_of_another_lane(request: pytest.FixtureRequest, also: object) -> None:
    assert request.node.get_closest_marker("unit") is None
