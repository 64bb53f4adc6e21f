"""How the hardware probe times things, and one real probe of this machine's CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from autotune.proposals.times import probed
from autotune.specification.interpreter import Interpreter
from tests.support.not_none import not_none
from trainer.child import probe_speed
from trainer.child.contract import RunPaths, read_result

PYTHON = os.environ.get("AUTOTUNE_TEST_PYTHON", "")


class Ticking:
    """A clock that only work moves."""

    def __init__(self, durations: list[float]) -> None:
        self.now = 100.0
        self.durations = durations
        self.runs = 0
        self.finished = 0

    def __call__(self) -> float:
        return self.now

    def work(self) -> None:
        self.now += self.durations[min(self.runs, len(self.durations) - 1)]
        self.runs += 1

    def finish(self) -> None:
        self.finished += 1


def test_the_fastest_run_counts_but_not_the_first() -> None:
    clock = Ticking([0.1, 5.0, 3.0, 4.0, 6.0])
    assert probe_speed.fastest(clock.work, clock.finish, 12.0, clock) == pytest.approx(3.0)
    assert clock.finished == clock.runs == 4, "nothing is begun after the limit"


@pytest.mark.parametrize("limit", [0.0, -1.0, 0.5])
def test_two_runs_at_least_whatever_the_limit(limit: float) -> None:
    clock = Ticking([7.0, 2.0])
    assert probe_speed.fastest(clock.work, clock.finish, limit, clock) == pytest.approx(2.0)
    assert clock.runs == 2


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    clock = Ticking([0.0])
    assert 0 < probe_speed.fastest(clock.work, clock.finish, 0.0, clock) <= 1e-9


def test_work_is_doubled_until_it_takes_long_enough() -> None:
    tried: list[int] = []

    def seconds_of(size: int) -> float:
        tried.append(size)
        return size**3 * 1e-11

    size = probe_speed.largest_that_fits(seconds_of, 512, 16384, least=0.02)
    assert size == 2048
    assert tried == [512, 1024, 2048]
    assert probe_speed.largest_that_fits(lambda _: 0.0, 512, 4096) == 4096
    assert probe_speed.largest_that_fits(lambda _: 9.0, 512, 4096) == 512


@pytest.mark.parametrize(
    ("text", "seconds", "device", "sustained"),
    [("{}", 12.0, "", False), ("[]", 12.0, "", False), ('{"seconds": 3}', 3.0, "", False),
     ('{"seconds": 99, "device": "cpu"}', 12.0, "cpu", False), ('{"seconds": -1, "device": "cuda"}', 0.05, "", False),
     ('{"seconds": true, "sustained": true}', 12.0, "", True), ('{"seconds": "3", "sustained": 1}', 12.0, "", False)],
)  # fmt: skip
def test_a_question_is_read_within_its_bounds(
    tmp_path: Path, text: str, seconds: float, device: str, sustained: bool
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert probe_speed.read_question(path) == (seconds, device, sustained)
    assert probe_speed.read_question(tmp_path / "absent.json") == (12.0, "", False)


def test_beside_others_the_average_counts_and_not_the_run_that_was_left_alone() -> None:
    clock = Ticking([9.0, 1.0, 5.0, 3.0, 7.0])
    assert probe_speed.average(clock.work, clock.finish, 8.5, clock) == pytest.approx((1.0 + 5.0 + 3.0) / 3)
    assert clock.finished == clock.runs == 4, "the first run does not count, and nothing is begun after the limit"
    assert probe_speed.average(clock.work, clock.finish, 0.0, clock) == pytest.approx(7.0)


def test_a_probe_without_torch_is_a_result_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    result = probe_speed.main(tmp_path)
    assert not result.ok
    assert "torch" in result.message
    assert read_result(RunPaths(tmp_path).result) == result


def test_one_figure_that_cannot_be_measured_is_left_out() -> None:
    data: dict[str, object] = {"flops": {}}

    def broken(limit: float) -> float:
        raise RuntimeError("not implemented for 'Half'")

    probe_speed._keep(data, "flops.fp16", broken, 1.0)
    probe_speed._keep(data, "flops.fp32", lambda limit: 2.0 * limit, 1.0)
    probe_speed._keep(data, "bandwidth", broken, 1.0)
    assert data == {"flops": {"fp32": 2.0}}


@pytest.mark.full
@pytest.mark.trl
@pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_TEST_PYTHON names no interpreter")
def test_a_real_machine_is_measured_once_and_kept(tmp_path: Path) -> None:
    interpreter = Interpreter(PYTHON, tmp_path)
    result = interpreter.speed({"cpu": "this one"}, "cpu")
    assert result.ok, result.message
    assert result.data["device"] == "cpu"
    assert result.data["seconds"] > 0
    found = not_none(probed(json.loads(json.dumps(result.data))))
    assert {"fp32", "bf16"} <= set(found.flops)
    assert 1e8 < found.flops["fp32"] < 1e16
    assert 1e8 < found.bandwidth < 2e13
    assert 1e-8 < found.kernel_s < 1e-2
    assert interpreter.speed({"cpu": "this one"}, "cpu") == result, "the same question is not measured again"
