"""The GPUs as the driver tells of them now. The one file that speaks to NVML; a machine without a driver has none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.errors import MachineError


@dataclass(frozen=True)
class GpuProcess:
    """A process computing on a GPU, by the driver's process id; ``None`` bytes = not told."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one slice of a GPU (MIG), as the driver sees it now; memory in bytes."""

    index: int
    """As NVML and ``nvidia-smi`` count; of a slice, its GPU's."""
    uuid: str
    name: str
    memory: int
    memory_used: int
    compute_capability: tuple[int, int]
    driver: str
    mig: bool = False
    """It is a slice, or a GPU that can only be used in slices."""
    processes: tuple[GpuProcess, ...] = ()
    slices: tuple[Gpu, ...] = ()
    """What it has been cut into."""

    @property
    def cuda_name(self) -> str:
        """As ``CUDA_VISIBLE_DEVICES`` takes it, with the devices counted by their place on the bus.

        A number for a whole GPU, because DeepSpeed reads that variable as numbers.
        """
        return self.uuid if self.uuid.startswith("MIG-") else str(self.index)


def read_gpus(library: Any = None) -> tuple[Gpu, ...]:
    """Every GPU of the machine, with its slices; empty without a driver.

    Args:
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.

    Raises:
        MachineError: the driver is there but a GPU cannot be read (lost, resetting).
    """
    with _nvml(library) as nvml:
        if nvml is None:
            return ()
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            return tuple(_gpu(nvml, i, driver) for i in range(nvml.nvmlDeviceGetCount()))
        except nvml.NVMLError as error:
            raise MachineError(f"the driver does not answer for its GPUs: {error}") from error


@contextmanager
def _nvml(library: Any) -> Iterator[Any]:
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError:
        yield None
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int, driver: str) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    whole = Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        **_state(nvml, handle),
        compute_capability=(int(major), int(minor)),
        driver=driver,
        mig=bool(_ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], 0)),
    )
    return replace(whole, slices=tuple(_slices(nvml, handle, whole))) if whole.mig else whole


def _slices(nvml: Any, handle: Any, whole: Gpu) -> Iterator[Gpu]:
    for place in range(_ask(nvml, partial(nvml.nvmlDeviceGetMaxMigDeviceCount, handle), 0)):
        part = _ask(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place), None)
        if part is not None:
            name = _text(_ask(nvml, partial(nvml.nvmlDeviceGetName, part), whole.name))
            yield replace(whole, uuid=_text(nvml.nvmlDeviceGetUUID(part)), name=name, **_state(nvml, part))


def _state(nvml: Any, handle: Any) -> dict[str, Any]:
    # version 2 leaves out what the driver keeps for itself, which version 1 counts as used
    memory = _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2), None)
    memory = memory or nvml.nvmlDeviceGetMemoryInfo(handle)
    processes = _ask(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), [])
    return {
        "memory": int(memory.total),
        "memory_used": int(memory.used),
        "processes": tuple(GpuProcess(p.pid, p.usedGpuMemory) for p in processes),
    }


def _ask(nvml: Any, question: Callable[[], Any], otherwise: Any) -> Any:
    """An answer not every GPU has."""
    try:
        return question()
    except nvml.NVMLError:
        return otherwise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
