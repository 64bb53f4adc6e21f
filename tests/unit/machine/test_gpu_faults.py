"""Faults of GPUs, as the driver tells of them: by an event, by a count of memory errors, or by not answering."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.errors import MachineError
from autotune.machine import hardware
from autotune.machine.gpu_faults import GpuFault, sentence
from autotune.machine.nvml import open_gpus
from tests.support.not_none import not_none
from tests.unit.machine.test_gpu_reader import WHOLE
from tests.unit.machine.test_gpu_reader import FakeNvml as Reader
from tests.unit.machine.test_hardware import FakeNvml, gpu


class Watched(Reader):
    """GPUs with events and counts of memory errors."""

    nvmlEventTypeXidCriticalError = 8  # noqa: N815

    def __init__(self, gpus: dict[str, dict[str, Any]], *, events: bool = True) -> None:
        super().__init__(gpus)
        self.waiting: list[tuple[str, int]] = []
        self.events, self.sets = events, 0

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        self.sets += 1
        return object()

    def nvmlDeviceRegisterEvents(self, handle: dict[str, Any], kinds: int, events: object) -> None:  # noqa: N802
        if not self.events:
            raise self.NVMLError("not supported")

    def nvmlEventSetFree(self, events: object) -> None:  # noqa: N802
        self.sets -= 1

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:  # noqa: N802
        if not self.waiting:
            raise self.NVMLError("timeout")
        uuid, code = self.waiting.pop(0)
        return SimpleNamespace(device={"uuid": uuid}, eventData=code)

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> str:  # noqa: N802
        return str(handle["uuid"])

    def nvmlDeviceGetTotalEccErrors(self, handle: dict[str, Any], kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (1, 0), "uncorrected, and since the driver was loaded"
        return int(self._answer(handle, "errors"))


def two() -> dict[str, dict[str, Any]]:
    return {name: {**WHOLE, "uuid": name, "index": index, "errors": 7} for name, index in (("GPU-a", 2), ("GPU-b", 5))}


def test_events_are_told_once_and_those_a_program_causes_are_not() -> None:
    nvml = Watched(two())
    reader = not_none(open_gpus(["GPU-a", "GPU-b"], nvml))
    assert reader.faults() == ()
    nvml.waiting = [("GPU-b", 79), ("GPU-a", 13), ("GPU-a", 43), ("GPU-x", 79), ("GPU-a", 94)]
    assert [(f.uuid, f.index, f.lasts) for f in reader.faults()] == [("GPU-b", 5, True), ("GPU-a", 2, False)]
    assert reader.faults() == ()
    reader.close()
    assert nvml.sets == 0
    assert nvml.open == 0


def test_new_memory_errors_are_a_fault_and_old_ones_are_not() -> None:
    gpus = two()
    reader = not_none(open_gpus(["GPU-a", "GPU-b"], Watched(gpus, events=False)))
    assert reader.faults() == ()
    gpus["GPU-b"]["errors"] = 9
    (fault,) = reader.faults()
    assert (fault.uuid, fault.lasts) == ("GPU-b", False)
    assert "2 new uncorrectable memory errors" in str(fault)
    assert reader.faults() == ()


def test_a_gpu_that_stops_to_answer_is_told_once() -> None:
    gpus = two()
    reader = not_none(open_gpus(["GPU-a", "GPU-b"], Watched(gpus)))
    gpus["GPU-a"]["lost"] = True
    assert [str(f) for f in reader.faults()] == ["GPU 2: the driver does not answer for it (GPU is lost)"]
    assert reader.faults() == ()


def test_a_binding_without_any_of_it_is_read_all_the_same() -> None:
    reader = not_none(open_gpus(["GPU-a"], Reader({"GPU-a": {**WHOLE}})))
    assert reader.faults() == ()
    assert reader.read()[0].busy == 0.45


class Remapping(FakeNvml):
    """GPUs some of which have rows of memory that could not be replaced."""

    def nvmlDeviceGetRemappedRows(self, handle: dict[str, Any]) -> tuple[int, int, int, int]:  # noqa: N802
        return (0, 4, 1, int(handle.get("failed", False)))


def test_one_lost_gpu_leaves_the_others_and_is_named() -> None:
    nvml = Remapping([gpu("a"), gpu("b", lost=True), gpu("c", failed=True), gpu("d")])
    assert [(g.index, g.uuid) for g in hardware.visible_gpus({}, nvml)] == [(0, "GPU-aa"), (3, "GPU-dd")]
    assert [g.index for g in hardware.visible_gpus({"CUDA_VISIBLE_DEVICES": "3,1,GPU-cc,0"}, nvml)] == [3, 0]
    unfit = hardware.unfit_gpus(nvml)
    assert [(f.index, f.uuid) for f in unfit] == [(1, ""), (2, "GPU-cc")]
    assert "GPU is lost" in sentence(unfit)
    assert "could not be replaced" in sentence(unfit)


def test_all_lost_is_a_named_problem() -> None:
    with pytest.raises(MachineError, match=r"no GPU can be used: GPU 0: .*GPU is lost.*; GPU 1: "):
        hardware.visible_gpus({}, FakeNvml([gpu("a", lost=True), gpu("b", lost=True)]))


def test_a_sentence_names_each_once() -> None:
    fault = GpuFault("GPU-a", 1, "an NVLink error (XID 74)")
    assert sentence([fault, fault]) == "GPU 1: an NVLink error (XID 74)"
