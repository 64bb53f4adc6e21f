"""The GPUs a trial sees, and who watches them, on a machine with several that are only made up."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason
from autotune.machine import hardware
from autotune.machine.nvml import Gpu, GpuProcess
from autotune.ports import Assignment, RunReport
from autotune.running import gpu_guard, gpu_sampler, supervisor
from autotune.running.gpu_guard import PatientCall
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.nvml import pynvml as made_up_driver
from tests.support.scripted import assignment, local_runner
from trainer.child.contract import NoteRecord

GIB = 1 << 30
HOME = f"several-gpus-{os.getpid()}"


class Node:
    """GPUs that a test changes while a trial runs."""

    def __init__(self, count: int, first: int = 0) -> None:
        self.gpus = tuple(
            Gpu(n, f"GPU-{n}", "Example 80GB", 80 * GIB, 0, (9, 0), "580.1") for n in range(first, first + count)
        )

    def use(self, index: int, size: int, *pids: int) -> None:
        """``size`` bytes of one GPU are in use, by these processes."""
        processes = tuple(GpuProcess(pid, None) for pid in pids)
        changed = replace(self.gpus[index], memory_used=size, processes=processes)
        self.gpus = (*self.gpus[:index], changed, *self.gpus[index + 1 :])

    def look(self, *_: object) -> tuple[Gpu, ...]:
        return self.gpus


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    node = Node(4, first=4)
    monkeypatch.setattr(hardware, "visible_gpus", node.look)
    monkeypatch.setattr(hardware, "driver_process_ids_are_ours", lambda: True)
    monkeypatch.setattr(hardware, "has_gpu_open", lambda _: True)
    monkeypatch.setattr(supervisor, "GUARD_S", 0.05)
    monkeypatch.setattr(gpu_guard, "STEP_S", 0.01)
    yield node
    assert tagged(HOME) == []


def wanted(folder: Path, held: int, acts: list[dict[str, Any]], server: dict[str, Any] | None = None) -> Assignment:
    script = {"acts": acts, **({} if server is None else {"server": server})}
    made = assignment(folder / "attempt", script)
    resources = replace(made.study.spec.resources, gpus=held, device="cuda")
    return replace(made, study=replace(made.study, spec=replace(made.study.spec, resources=resources)))


def run(made: Assignment, seen: Seen | None = None) -> RunReport:
    return local_runner(HOME).run(made, seen or Seen(), FakeStop())


class Ahead(RealClock):
    """Does not wait: a pause is over at once, and it is later."""

    def __init__(self) -> None:
        self._slept = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._slept

    def sleep(self, seconds: float) -> None:
        self._slept += seconds


def environment(name: str, value: str) -> dict[str, Any]:
    return {"do": "environment", "at": "start", "name": name, "value": value}


@pytest.mark.parametrize(("held", "numbers"), [(4, "4,5,6,7"), (2, "4,5"), (1, "4")])
def test_a_trial_sees_the_gpus_its_study_holds_and_no_other(
    node: Node, tmp_path: Path, held: int, numbers: str
) -> None:
    acts = [environment("CUDA_VISIBLE_DEVICES", numbers), environment("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]
    outcome = run(wanted(tmp_path, held, acts)).outcome
    assert outcome.ok, outcome.sentence()


def test_a_gpu_that_is_gone_is_the_machines_fault(node: Node, tmp_path: Path) -> None:
    node.gpus = node.gpus[:3]
    outcome = run(wanted(tmp_path, 4, [])).outcome
    assert outcome.reason is FailureReason.INFRA
    assert outcome.message == "the study holds 4 GPUs, and 3 GPUs are visible now"


@pytest.mark.parametrize(("held", "refused"), [(4, True), (3, False)])
def test_a_stranger_on_any_gpu_held_keeps_a_trial_from_starting(
    node: Node, tmp_path: Path, held: int, refused: bool
) -> None:
    node.use(3, 20 * GIB, 1)
    runner = local_runner(HOME, clock=Ahead()) if refused else local_runner(HOME)
    outcome = runner.run(wanted(tmp_path, held, []), Seen(), FakeStop()).outcome
    assert (outcome.reason is FailureReason.INFRA) is refused
    assert not refused or "GPU 7 is in use by process 1" in outcome.message


@pytest.mark.parametrize("server", [None, {}])
def test_a_stranger_who_comes_to_the_last_gpu_spoils_the_trial(
    node: Node, tmp_path: Path, server: dict[str, Any] | None
) -> None:
    """With a rollout server that GPU is the server's, and no less watched."""
    seen = Seen(on_tick=lambda: node.use(3, GIB // 2, 1))
    outcome = run(wanted(tmp_path, 4, [{"do": "sleep", "at": 1}], server), seen).outcome
    assert outcome.reason is FailureReason.INFRA
    assert "another process (1) began to use the GPU" in outcome.message


def test_what_was_in_use_on_each_gpu_is_kept_with_the_trial(node: Node, tmp_path: Path) -> None:
    freed = threading.Event()

    def grow() -> None:
        for index, size in enumerate(() if freed.is_set() else (60, 61, 62, 71)):
            node.use(index, size * GIB)

    def free(record: Any) -> None:
        if type(record).__name__ == "WorstCaseRecord":
            freed.set()  # a slow trial is looked at again after it
            for index in range(4):
                node.use(index, 0)

    seen = Seen(react=free, on_tick=grow)
    acts = [{"do": "sleep", "at": 0, "seconds": 0.8}]
    outcome = run(wanted(tmp_path, 4, acts), seen).outcome
    assert outcome.ok, outcome.sentence()
    (note,) = [r for r in seen.records if isinstance(r, NoteRecord) and r.name == "gpu_peaks"]
    assert note.data == {"bytes": {"4": 60 * GIB, "5": 61 * GIB, "6": 62 * GIB, "7": 71 * GIB}}


def test_what_the_gpus_did_is_told_with_the_cycles(node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a driver that is made up, whose eight GPUs are half busy; a study that holds none asks no driver."""
    monkeypatch.setitem(sys.modules, "pynvml", made_up_driver)
    monkeypatch.setenv("MADE_UP_GPUS", json.dumps([{"busy": 40}] * 5 + [{"busy": 60}] * 3))
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.02)
    seen = Seen()
    made = wanted(tmp_path, 2, [{"do": "sleep", "at": index, "seconds": 0.5} for index in range(3)])
    assert run(made, seen).outcome.ok
    used = [cycle.gpu for cycle in seen.cycles() if cycle.gpu]
    assert used, "every cycle was over before the driver was asked once"
    assert {use["cycle"].busy for use in used} == {0.5}, "the mean of the fifth GPU and the sixth"
    assert {use["cycle"].sm_mhz for use in used} == {1800.0}
    assert all(use["cycle"].pcie_sent is None for use in used)
    none = Seen()
    assert run(wanted(tmp_path / "cpu", 0, []), none).outcome.ok
    assert [cycle.gpu for cycle in none.cycles() if cycle.gpu] == []


@pytest.fixture
def xids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the made-up driver reads its events from."""
    monkeypatch.setitem(sys.modules, "pynvml", made_up_driver)
    monkeypatch.setenv("MADE_UP_GPUS", json.dumps([{}] * 8))
    monkeypatch.setenv("MADE_UP_XIDS", str(tmp_path / "xids"))
    monkeypatch.setattr(gpu_sampler, "PERIOD_S", 0.02)
    monkeypatch.setattr(gpu_sampler, "FAULTS_S", 0.02)
    return tmp_path / "xids"


def happen(xids: Path, *events: str) -> None:
    for event in events:
        (xids / event).mkdir(parents=True, exist_ok=True)


def named_as_the_driver_does(node: Node) -> None:
    node.gpus = tuple(replace(gpu, uuid=f"GPU-{gpu.index:08x}") for gpu in node.gpus)


def test_a_gpu_that_fails_ends_the_trial_as_the_machines_fault_and_the_next_uses_others(
    node: Node, tmp_path: Path, xids: Path
) -> None:
    named_as_the_driver_does(node)
    runner, asleep = local_runner(HOME), [{"do": "sleep", "at": 1, "seconds": 60}]
    seen = Seen(react=lambda record: happen(xids, "5-79"))
    report = runner.run(wanted(tmp_path / "one", 2, asleep), seen, FakeStop())
    assert report.outcome.reason is FailureReason.INFRA
    assert report.outcome.message == "GPU 5: it has fallen off the bus (XID 79)"
    assert report.gpu_faults == (report.outcome.message,)
    assert report.seconds < 60
    acts = [environment("CUDA_VISIBLE_DEVICES", "4,6")]
    assert runner.run(wanted(tmp_path / "two", 2, acts), Seen(), FakeStop()).outcome.ok
    none = runner.run(wanted(tmp_path / "three", 4, []), Seen(), FakeStop())
    assert none.outcome.reason is FailureReason.INFRA
    assert "needs 4 GPUs, and 3 can be used; GPU 5: it has fallen off the bus" in none.outcome.message


def test_a_trial_that_dies_of_its_gpu_is_no_crash_of_its_configuration(node: Node, tmp_path: Path, xids: Path) -> None:
    named_as_the_driver_does(node)
    seen = Seen(react=lambda record: happen(xids, "4-94"))
    report = local_runner(HOME).run(wanted(tmp_path, 2, [{"do": "crash", "at": 1}]), seen, FakeStop())
    assert report.outcome.reason is FailureReason.INFRA
    assert "GPU 4: an uncorrectable memory error, contained (XID 94)" in report.outcome.message


def test_an_error_of_a_program_is_none_of_its_gpu(node: Node, tmp_path: Path, xids: Path) -> None:
    named_as_the_driver_does(node)
    happen(xids, "4-13", "5-43")
    report = local_runner(HOME).run(wanted(tmp_path, 2, []), Seen(), FakeStop())
    assert report.outcome.ok, report.outcome.sentence()
    assert report.gpu_faults == ()


def test_a_driver_that_takes_long_in_a_trial_does_not_hold_it_up(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = list[int](), threading.Event()

    def look(*_: object) -> tuple[Gpu, ...]:
        asked.append(1)
        if len(asked) == 4:  # two before the trial, one and this one in it
            answers.wait(60)
        return node.gpus

    monkeypatch.setattr(hardware, "visible_gpus", look)
    seen = Seen(on_tick=lambda: len(asked) > 3 and answers.set())
    outcome = run(wanted(tmp_path, 4, [{"do": "sleep", "at": 1, "seconds": 2.0}]), seen).outcome
    assert outcome.ok, outcome.sentence()
    assert answers.is_set()


def test_a_driver_that_never_answers_is_the_machines_fault(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    never = PatientCall(lambda: answers.wait(60) and (), patience_s=0.1)
    outcome = local_runner(HOME, driver=never).run(wanted(tmp_path, 4, []), Seen(), FakeStop()).outcome
    answers.set()
    assert outcome.reason is FailureReason.INFRA
    assert "the GPU driver has not answered for" in outcome.message
