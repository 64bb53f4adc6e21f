"""The unit lane needs no training environment; a test of it that asks for one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import computing, lanes
from tests.support.lanes import may_have
from tests.support.trl_trials import training_python


def test_a_test_that_is_not_marked_has_no_training_interpreter(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("unit") is not None
    with pytest.raises(AssertionError, match="mark it `trl`"):
        training_python()


@pytest.mark.slow
@pytest.mark.parametrize("also", [(), pytest.param((), marks=pytest.mark.full)])
def test_what_is_marked_is_of_another_lane(request: pytest.FixtureRequest, also: object) -> None:
    assert request.node.get_closest_marker("unit") is None


UNIT_LANE = "unit and not alone and not frameworks"
EVERYDAY = "not slow and not full and not alone"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {UNIT_LANE, EVERYDAY}),
        ("pytestmark = pytest.mark.full\n", {"full"}),
        ("pytestmark = [\n    pytest.mark.trl,\n    pytest.mark.full,\n]\nX = 1\n", {"full"}),
        ("pytestmark = [pytest.mark.trl, pytest.mark.timeout(9)]\n", {EVERYDAY}),
        ("@pytest.mark.full\ndef test_one(): ...\n", {UNIT_LANE, EVERYDAY, "full"}),
        ("pytestmark = pytest.mark.slow\n@pytest.mark.alone\ndef test_one(): ...\n", {"slow and alone"}),
        ("pytestmark = pytest.mark.gpu\n", {"full"}),
        ("from tests.gpu.device import CUDA\n", {UNIT_LANE, EVERYDAY, "full"}),
    ],
)
def test_a_file_without_a_test_of_a_lane_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: set[str]
) -> None:
    monkeypatch.setattr(lanes, "UNIT", (tmp_path,))
    file = tmp_path / "test_one.py"
    file.write_text(text)
    assert {lane for lane in (UNIT_LANE, EVERYDAY, "full", "slow and alone") if may_have(file, lane)} == expected


def test_of_any_other_expression_a_file_may_have_a_test(tmp_path: Path) -> None:
    file = tmp_path / "test_one.py"
    file.write_text("pytestmark = pytest.mark.full\n")
    assert not may_have(file, "not full")
    assert may_have(file, "full or slow")
    assert may_have(file, "not (full)")
    assert may_have(file, "")


@pytest.mark.parametrize(("took", "failed"), [(computing.MOST_S - 1, False), (computing.MOST_S + 1, True)])
def test_a_unit_test_has_so_many_seconds_of_computing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, took: float, failed: bool
) -> None:
    item = request.node
    call = pytest.CallInfo.from_call(lambda: None, "teardown")
    monkeypatch.setattr(computing, "computed", lambda: item.stash[computing.BEGAN] + took)
    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
    assert report.computed == pytest.approx(took)
    assert report.failed is failed
