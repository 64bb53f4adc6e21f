"""A driver that is only made up: put this folder on ``PYTHONPATH`` and the tuner meets the GPUs of ``MADE_UP_GPUS``.

That variable is a JSON list, one object for each GPU: ``name``, ``memory`` (bytes), ``busy`` (percent) and ``watts``,
all with a default, ``used`` (bytes, none) and ``ecc`` (uncorrectable errors, none). One with ``"lost": true`` answers
nothing. ``MADE_UP_XIDS`` is a folder whose folders are events of the driver, each told once: ``3-79`` is XID 79 of
GPU 3. ``MADE_UP_STATE`` is a file of what has changed since: ``{"0": {"lost": true}, "slow": 5}``, the latter in
seconds of each answer. ``MADE_UP_DRIVER`` is the driver's version. What ``nvidia-ml-py`` would answer, as
far as ``autotune.machine.nvml`` asks.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

nvmlMemory_v2 = 2  # noqa: N816 - the library's names
nvmlEventTypeXidCriticalError = 8  # noqa: N816


class NVMLError(Exception):
    value = 3


class Lost(NVMLError):  # noqa: N818
    value = 15


def _state() -> dict[str, Any]:
    try:
        return dict(json.loads(Path(os.environ["MADE_UP_STATE"]).read_text()))
    except (KeyError, FileNotFoundError):
        return {}


def _gpus() -> list[dict[str, Any]]:
    state = _state()
    return [{**gpu, **state.get(str(n), {})} for n, gpu in enumerate(json.loads(os.environ["MADE_UP_GPUS"]))]


def _now(handle: dict[str, Any]) -> dict[str, Any]:
    return nvmlDeviceGetHandleByIndex(int(handle["index"]))


def nvmlInit() -> None:  # noqa: N802
    pass


def nvmlShutdown() -> None:  # noqa: N802
    pass


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return os.environ.get("MADE_UP_DRIVER", "590.10")


def nvmlDeviceGetCount() -> int:  # noqa: N802
    time.sleep(_state().get("slow", 0.0))
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:  # noqa: N802
    gpu = {"index": index, **_gpus()[index]}
    if gpu.get("lost"):
        raise Lost("GPU is lost")
    return gpu


def nvmlDeviceGetIndex(handle: dict[str, Any]) -> int:  # noqa: N802
    return int(handle["index"])


def nvmlEventSetCreate() -> object:  # noqa: N802
    return object()


def nvmlDeviceRegisterEvents(handle: dict[str, Any], kinds: int, events: object) -> None:  # noqa: N802
    pass


def nvmlEventSetFree(events: object) -> None:  # noqa: N802
    pass


def nvmlEventSetWait_v2(events: object, milliseconds: int) -> Any:  # noqa: N802
    folder = Path(os.environ.get("MADE_UP_XIDS", "/nonexistent"))
    for event in sorted(folder.glob("*-*")):
        try:
            event.rmdir()
        except FileNotFoundError:  # another waiter was told of it
            continue
        index, code = map(int, event.name.split("-"))
        return SimpleNamespace(device=nvmlDeviceGetHandleByIndex(index), eventType=8, eventData=code)
    raise NVMLError("timeout")


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:  # noqa: N802
    return f"GPU-{handle['index']:08x}"


def nvmlDeviceGetName(handle: dict[str, Any]) -> str:  # noqa: N802
    return str(handle.get("name", "Made-up 80GB"))


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any], version: int = 1) -> Any:  # noqa: N802
    gpu = _now(handle)
    return SimpleNamespace(total=gpu.get("memory", 80 << 30), used=gpu.get("used", 0))


def nvmlDeviceGetTotalEccErrors(handle: dict[str, Any], kind: int, since: int) -> int:  # noqa: N802
    return int(_now(handle).get("ecc", 0))


def nvmlDeviceGetCudaComputeCapability(handle: dict[str, Any]) -> tuple[int, int]:  # noqa: N802
    return (9, 0)


def nvmlDeviceGetComputeRunningProcesses(handle: dict[str, Any]) -> list[Any]:  # noqa: N802
    return []


def nvmlDeviceGetMigMode(handle: dict[str, Any]) -> list[int]:  # noqa: N802
    raise NVMLError("not supported")


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:  # noqa: N802
    return nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-"), 16))


def nvmlDeviceGetUtilizationRates(handle: dict[str, Any]) -> Any:  # noqa: N802
    return SimpleNamespace(gpu=handle.get("busy", 50), memory=20)


def nvmlDeviceGetClockInfo(handle: dict[str, Any], clock: int) -> int:  # noqa: N802
    return 1800


def nvmlDeviceGetMaxClockInfo(handle: dict[str, Any], clock: int) -> int:  # noqa: N802
    return 2000


def nvmlDeviceGetPowerUsage(handle: dict[str, Any]) -> int:  # noqa: N802
    return int(1000 * handle.get("watts", 300))


def nvmlDeviceGetTotalEnergyConsumption(handle: dict[str, Any]) -> int:  # noqa: N802
    return int(time.time() * nvmlDeviceGetPowerUsage(handle))


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: dict[str, Any]) -> int:  # noqa: N802
    return 0


def nvmlDeviceGetTemperature(handle: dict[str, Any], sensor: int) -> int:  # noqa: N802
    return 41


def nvmlDeviceGetFieldValues(handle: dict[str, Any], fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
    raise NVMLError("not supported")
