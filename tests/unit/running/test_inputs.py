"""A model, prompts or a reward that are away while a trial runs or begins: the machine's fault, and waited for."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason
from autotune.ports import Assignment, RunReport
from autotune.running.local import PATIENCE_S, Inputs
from tests.contracts.runner_suite import Seen
from tests.support import factories as f
from tests.support.fakes import FakeClock, FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.scripted_framework import ScriptedFramework
from trainer.child.contract import Record, RewardSpec, TrialSpec

HOME = f"inputs-{os.getpid()}"
NAMES = ("model", "prompts.jsonl", "reward.py")


class Watching(Seen):
    """Calls ``act`` with the first record."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self._act = act

    def record(self, record: Record) -> None:
        act, self._act = self._act, None
        if act is not None:
            act()
        super().record(record)


@pytest.fixture
def given(tmp_path: Path) -> Assignment:
    """An attempt whose inputs are there; its child fails in the second cycle."""
    (tmp_path / "model").mkdir()
    for name in NAMES[1:]:
        (tmp_path / name).write_text("x\n")
    made = assignment(tmp_path / "attempt", {"acts": [{"do": "raise", "at": 1}], "sleep": 0.3})
    reward = RewardSpec("file", "score", str(tmp_path / "reward.py"))
    workload = replace(
        made.study.spec.workload,
        model=str(tmp_path / "model"),
        prompts=str(tmp_path / "prompts.jsonl"),
        rewards=(reward,),
    )
    return replace(made, study=replace(made.study, spec=replace(made.study.spec, workload=workload)))


def _run(given: Assignment, act: Any = None, **changes: Any) -> RunReport:
    return local_runner(HOME, **changes).run(given, Watching(act), FakeStop())


@pytest.mark.parametrize("name", NAMES)
def test_a_trial_that_fails_while_an_input_is_away_failed_for_that(
    given: Assignment, tmp_path: Path, name: str
) -> None:
    there = tmp_path / name
    report = _run(given, lambda: there.rename(tmp_path / "renamed"))
    assert report.absent
    assert report.outcome.reason is FailureReason.INFRA
    assert f"{there} is not there" in report.outcome.message


def test_a_trial_that_fails_while_all_is_there_failed_for_its_own_reason(given: Assignment) -> None:
    report = _run(given)
    assert not report.absent
    assert report.outcome.reason is not FailureReason.INFRA


def test_what_never_was_there_is_not_waited_for(tmp_path: Path) -> None:
    report = _run(assignment(tmp_path / "attempt"))
    assert f.workload().model.startswith("/")
    assert not report.absent
    assert report.outcome.ok


@pytest.mark.parametrize(("back_after", "away"), [(8.0, False), (PATIENCE_S + 5.0, True)])
def test_it_is_waited_for_as_long_as_a_mount_takes(
    given: Assignment, tmp_path: Path, back_after: float, away: bool
) -> None:
    spec, looked, seen = ScriptedFramework().render(given), Inputs(), Seen()
    assert looked.missing(spec) is None
    (tmp_path / "model").rename(tmp_path / "renamed")

    class Returning(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if self.monotonic() >= back_after and not (tmp_path / "model").exists():
                (tmp_path / "renamed").rename(tmp_path / "model")

    clock = Returning()
    sentence = looked.wait(spec, clock, seen, FakeStop(), 1000.0)
    assert (sentence is not None) is away
    assert clock.monotonic() <= PATIENCE_S + 1.0
    assert len(seen.ticks) >= min(back_after, PATIENCE_S)


@pytest.mark.parametrize(("level", "most_s"), [(1, 1000.0), (2, 1000.0), (0, 0.0)])
def test_neither_a_user_who_stops_nor_a_budget_that_ends_is_kept_waiting(
    given: Assignment, tmp_path: Path, level: int, most_s: float
) -> None:
    spec, looked, clock = ScriptedFramework().render(given), Inputs(), FakeClock()
    assert looked.missing(spec) is None
    (tmp_path / "prompts.jsonl").unlink()
    assert "prompts.jsonl is not there" in str(looked.wait(spec, clock, Seen(), FakeStop(level), most_s))
    assert clock.monotonic() == 0.0


def test_a_disk_that_hangs_is_away_and_holds_nobody(given: Assignment, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, looked = ScriptedFramework().render(given), Inputs()
    assert looked.missing(spec) is None
    reading, writing = os.pipe()
    monkeypatch.setattr("autotune.running.local.ANSWER_S", 0.1)
    monkeypatch.setattr("autotune.running.local.os.path.exists", lambda _: bool(os.read(reading, 1)))
    try:
        assert f"{spec.model} does not answer" in str(looked.missing(spec))
    finally:
        os.write(writing, b"xxx")
        os.close(writing)


def test_only_a_named_place_on_this_machine_can_be_away(given: Assignment) -> None:
    spec: TrialSpec = replace(ScriptedFramework().render(given), model="org/name", prompts="", rewards=())
    assert Inputs().missing(spec) is None
