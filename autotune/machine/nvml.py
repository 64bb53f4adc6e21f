"""Reads the state of the GPUs from the driver. The only file that calls NVML; a machine without a driver has none. The
one file that speaks to NVML; a machine without a driver has none."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.errors import MachineError


@dataclass(frozen=True)
class GpuProcess:
    """A process computing on a GPU, by the driver's process id; ``None`` bytes = unknown."""

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
    nvml = _started(library)
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def _started(library: Any) -> Any:
    """The initialised binding; ``None`` where the binding or the driver is missing."""
    try:
        nvml = library or importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


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
    """Calls an NVML function that not every GPU supports."""
    try:
        return question()
    except nvml.NVMLError:
        return otherwise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment; ``None``: NVML does not say it of such a GPU, as of a slice.

    Counters only grow, from any beginning: two readings tell what lay between them.
    """

    busy: float | None = None
    """Share of the driver's last period (a sixth of a second to a second) in which a kernel ran, 0 to 1."""
    memory_busy: float | None = None
    """The same of device memory being read or written."""
    sm_mhz: float | None = None
    sm_mhz_max: float | None = None
    watts: float | None = None
    """Since Ampere a mean over a second."""
    joules: float | None = None
    """Counter."""
    pcie_sent: float | None = None
    """Counter of bytes to the host."""
    pcie_received: float | None = None
    """Counter of bytes from the host."""
    nvlink_sent: float | None = None
    """Counter of bytes."""
    nvlink_received: float | None = None
    """Counter of bytes."""
    power_capped: float | None = None
    """1 where the driver holds the clock down for power, else 0."""
    hot: float | None = None
    """1 where it does so for heat, else 0."""
    celsius: float | None = None


class GpuReader:
    """Reads the same GPUs again and again, NVML staying open until ``close``."""

    def __init__(self, nvml: Any, handles: Sequence[Any]) -> None:
        """``nvml`` is initialised."""
        self._nvml = nvml
        self._gpus = [_Gauges(nvml, handle) for handle in handles]

    def read(self) -> tuple[GpuReading, ...]:
        """One for each GPU, now."""
        return tuple(gpu.read() for gpu in self._gpus)

    def close(self) -> None:
        """Called once."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


def open_gpus(uuids: Sequence[str], library: Any = None) -> GpuReader | None:
    """A reader of these GPUs; ``None`` without a driver, or where one of them cannot be found.

    Args:
        uuids: as ``Gpu.uuid`` says.
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.
    """
    nvml = _started(library)
    if nvml is None:
        return None
    try:
        return GpuReader(nvml, [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids])
    except nvml.NVMLError:
        nvml.nvmlShutdown()
        return None


_SM_CLOCK, _TEMPERATURE = 1, 0
"""``NVML_CLOCK_SM``, ``NVML_TEMPERATURE_GPU``."""
_FOR_POWER = 0x4 | 0x80
"""``nvmlClocksEventReasonSwPowerCap``, ``...HwPowerBrakeSlowdown``."""
_FOR_HEAT = 0x20 | 0x40
"""``nvmlClocksEventReasonSwThermalSlowdown``, ``...HwThermalSlowdown``."""
_ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field that is the sum over the links."""
_FIELDS = {
    "pcie_sent": (197, 0, 1.0),
    "pcie_received": (198, 0, 1.0),
    "nvlink_sent": (138, _ALL_LINKS, 1024.0),
    "nvlink_received": (139, _ALL_LINKS, 1024.0),
}
"""Counter of ``GpuReading`` -> field, scope, bytes of its unit: ``NVML_FI_DEV_PCIE_COUNT_TX_BYTES``, ``..._RX_BYTES``,
``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX``, ``..._RX``. ``nvmlDeviceGetPcieThroughput`` would wait 20 ms for each."""
_UNSIGNED_INT = 1
"""``NVML_VALUE_TYPE_UNSIGNED_INT``: 32 bits, and begins again at 0."""


def _utilisation(nvml: Any, handle: Any) -> dict[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"busy": rates.gpu / 100.0, "memory_busy": rates.memory / 100.0}


def _clock(nvml: Any, handle: Any) -> dict[str, float]:
    return {"sm_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK))}


def _power(nvml: Any, handle: Any) -> dict[str, float]:
    return {"watts": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0}


def _energy(nvml: Any, handle: Any) -> dict[str, float]:
    return {"joules": nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0}


def _reasons(nvml: Any, handle: Any) -> dict[str, float]:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"power_capped": float(bool(reasons & _FOR_POWER)), "hot": float(bool(reasons & _FOR_HEAT))}


def _heat(nvml: Any, handle: Any) -> dict[str, float]:
    return {"celsius": float(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE))}


class _Gauges:
    """What one GPU is asked; a question it refuses is not asked again."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._refused = (nvml.NVMLError, AttributeError)  # an older binding lacks a function
        self._questions = [_utilisation, _clock, _power, _energy, _reasons, _heat, self._counters]
        self._raw: dict[str, int] = {}
        self._sums: dict[str, float] = {}
        self._fixed: dict[str, float] = {}
        with suppress(*self._refused):
            self._fixed["sm_mhz_max"] = float(nvml.nvmlDeviceGetMaxClockInfo(handle, _SM_CLOCK))

    def read(self) -> GpuReading:
        said = dict(self._fixed)
        for question in tuple(self._questions):
            try:
                said.update(question(self._nvml, self._handle))
            except self._refused:
                self._questions.remove(question)
        return GpuReading(**said)

    def _counters(self, nvml: Any, handle: Any) -> dict[str, float]:
        """Those the GPU has; one of 32 bits goes on where it began again, once between two readings at most."""
        answers = nvml.nvmlDeviceGetFieldValues(handle, [(field, scope) for field, scope, _ in _FIELDS.values()])
        for (name, (_, _, unit)), answer in zip(_FIELDS.items(), answers, strict=True):
            if answer.nvmlReturn != 0:
                continue
            short = answer.valueType == _UNSIGNED_INT
            raw = int(answer.value.uiVal if short else answer.value.ullVal)
            grown = raw - self._raw.get(name, raw)
            if grown < 0:
                grown = grown + (1 << 32) if short else 0
            self._raw[name] = raw
            self._sums[name] = self._sums.get(name, 0.0) + grown * unit
        return dict(self._sums)
