"""Reading GPUs again and again: what a GPU refuses is not asked twice, and counters go on where they begin again."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from autotune.machine.nvml import GpuReading, open_gpus
from tests.support.not_none import not_none

SHORT, LONG = 1, 3


class FakeNvml:
    """NVML of GPUs that answer from ``gpus``: by question; one that is missing is refused."""

    class NVMLError(Exception):
        pass

    def __init__(self, gpus: dict[str, dict[str, Any]], driver: bool = True) -> None:
        self.gpus, self.driver, self.open = gpus, driver, 0
        self.asked: Counter[str] = Counter()

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.driver:
            raise self.NVMLError("no driver")
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetIndex(self, handle: dict[str, Any]) -> int:  # noqa: N802
        return int(self._answer(handle, "index"))

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:  # noqa: N802
        if handle.get("lost"):
            error = self.NVMLError("GPU is lost")
            error.value = 15  # type: ignore[attr-defined]
            raise error
        return SimpleNamespace(total=1, used=0)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:  # noqa: N802
        if uuid not in self.gpus:
            raise self.NVMLError("not found")
        return self.gpus[uuid]

    def _answer(self, handle: dict[str, Any], name: str) -> Any:
        self.asked[name] += 1
        if name not in handle:
            raise self.NVMLError("not supported")
        return handle[name]

    def nvmlDeviceGetUtilizationRates(self, handle: dict[str, Any]) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._answer(handle, "busy"), memory=20)

    def nvmlDeviceGetClockInfo(self, handle: dict[str, Any], clock: int) -> Any:  # noqa: N802
        assert clock == 1
        return self._answer(handle, "mhz")

    def nvmlDeviceGetMaxClockInfo(self, handle: dict[str, Any], clock: int) -> Any:  # noqa: N802
        assert clock == 1
        return self._answer(handle, "mhz_max")

    def nvmlDeviceGetPowerUsage(self, handle: dict[str, Any]) -> Any:  # noqa: N802
        return self._answer(handle, "milliwatts")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: dict[str, Any]) -> Any:  # noqa: N802
        return self._answer(handle, "millijoules")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: dict[str, Any]) -> Any:  # noqa: N802
        return self._answer(handle, "reasons")

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> Any:  # noqa: N802
        assert sensor == 0
        return self._answer(handle, "celsius")

    def nvmlDeviceGetFieldValues(self, handle: dict[str, Any], fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        said = self._answer(handle, "fields")
        return [self._field(said.get(field)) for field, _ in fields]

    @staticmethod
    def _field(said: tuple[int, int] | None) -> Any:
        if said is None:
            return SimpleNamespace(nvmlReturn=3, valueType=0, value=None)
        kind, number = said
        return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(uiVal=number, ullVal=number))


WHOLE: dict[str, Any] = {
    "busy": 45,
    "mhz": 1755,
    "mhz_max": 1980,
    "milliwatts": 310_500,
    "millijoules": 5_000,
    "reasons": 0,
    "celsius": 51,
    "fields": {197: (SHORT, 10), 198: (LONG, 20), 138: (LONG, 3), 139: (LONG, 4)},
}


def test_a_counter_of_32_bits_goes_on_where_it_begins_again_and_one_of_64_that_fell_adds_nothing() -> None:
    gpu = {"fields": {197: (SHORT, 2**32 - 5), 198: (LONG, 900)}}
    reader = not_none(open_gpus(["GPU-a"], FakeNvml({"GPU-a": gpu})))
    reader.read()
    gpu["fields"] = {197: (SHORT, 7), 198: (LONG, 100)}
    read = reader.read()[0]
    assert (read.pcie_sent, read.pcie_received) == (12.0, 0.0)
    assert (read.nvlink_sent, read.nvlink_received) == (None, None), "a GPU without NVLink tells of none"


def test_what_a_gpu_refuses_is_not_asked_again() -> None:
    """As a slice does: it has no utilisation, clock or power of its own."""
    nvml = FakeNvml({"MIG-1": {"celsius": 40}})
    reader = not_none(open_gpus(["MIG-1"], nvml))
    reads = [reader.read()[0] for _ in range(3)]
    assert reads == [GpuReading(celsius=40.0)] * 3
    assert nvml.asked["celsius"] == 3
    assert {count for name, count in nvml.asked.items() if name != "celsius"} == {1}


def test_the_clock_is_held_down_for_power_or_for_heat() -> None:
    for reasons, wanted in ((0x1 | 0x2, (0.0, 0.0)), (0x4, (1.0, 0.0)), (0x80, (1.0, 0.0)), (0x20 | 0x4, (1.0, 1.0))):
        reader = not_none(open_gpus(["GPU-a"], FakeNvml({"GPU-a": {"reasons": reasons}})))
        read = reader.read()[0]
        assert (read.power_capped, read.hot) == wanted


def test_without_a_driver_or_such_a_gpu_there_is_no_reader() -> None:
    assert open_gpus(["GPU-a"], FakeNvml({"GPU-a": {}}, driver=False)) is None
    nvml = FakeNvml({"GPU-a": {}})
    assert open_gpus(["GPU-a", "GPU-b"], nvml) is None
    assert nvml.open == 0
