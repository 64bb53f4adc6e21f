"""Reads the state of the GPUs from the driver. The only module that calls NVML; without a driver there are no GPUs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.errors import MachineError
from autotune.machine import gpu_faults
from autotune.machine.gpu_faults import GpuFault


@dataclass(frozen=True)
class GpuProcess:
    """Process that computes on a GPU, by the driver's process id; ``memory`` in bytes, ``None`` if unknown."""

    pid: int
    memory: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one slice of a GPU (MIG), in its present state; memory in bytes."""

    index: int
    """Number of the GPU, or of a slice's GPU, as NVML and ``nvidia-smi`` count."""
    uuid: str
    name: str
    memory: int
    memory_used: int
    compute_capability: tuple[int, int]
    driver: str
    mig: bool = False
    """True for a slice, and for a GPU that can only be used in slices."""
    processes: tuple[GpuProcess, ...] = ()
    slices: tuple[Gpu, ...] = ()
    """Slices that the GPU is partitioned into."""
    persistent: bool | None = None
    """True if the driver keeps the GPU initialised while it is unused; ``None``: not reported."""
    paths: tuple[tuple[int, str], ...] = ()
    """Number of each other GPU and the path to it: ``NVLINK``, or the components on the way. Empty: not reported."""
    cpus: tuple[int, ...] = ()
    """CPUs of the socket that the GPU is connected to. Empty: not reported."""

    @property
    def cuda_name(self) -> str:
        """Name of the device in ``CUDA_VISIBLE_DEVICES``, if devices are numbered in the order on the bus.

        A number for a whole GPU, because DeepSpeed reads that variable as numbers.
        """
        return self.uuid if self.uuid.startswith("MIG-") else str(self.index)


NVLINK = "NVLink"
_PATHS = {
    10: "a PCIe switch",
    20: "PCIe switches",
    30: "a PCIe host bridge",
    40: "one socket",
    50: "the link between two sockets",
}
"""Words for ``nvmlGpuTopologyLevel_t``: the common ancestor of two GPUs."""


@dataclass(frozen=True)
class Machine:
    """GPUs of a machine, both usable and unfit."""

    gpus: tuple[Gpu, ...] = ()
    """Usable GPUs, with their slices."""
    unfit: tuple[GpuFault, ...] = ()


def read_machine(library: Any = None) -> Machine:
    """Reads every GPU as the driver describes it; empty without a driver.

    Args:
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.

    Raises:
        MachineError: the driver does not answer, or answers for none of its GPUs (lost, resetting).
    """
    with _nvml(library) as nvml:
        if nvml is None:
            return Machine()
        try:
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            raise MachineError(f"the driver does not answer for its GPUs: {error}") from error
        read = [_read(nvml, index, driver) for index in range(count)]
        fit = [one for one in read if isinstance(one, Gpu)]
        # one that is lost by now stays as it was read: the next reading names it
        gpus = tuple(_ask(nvml, partial(_with_paths, nvml, gpu, fit), gpu) for gpu in fit)
        unfit = tuple(one for one in read if isinstance(one, GpuFault))
        if unfit and not gpus:
            raise MachineError(f"no GPU can be used: {gpu_faults.sentence(unfit)}")
        return Machine(gpus, unfit)


def _read(nvml: Any, index: int, driver: str) -> Gpu | GpuFault:
    try:
        gpu = _gpu(nvml, index, driver)
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        failed = _ask(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle)[3], 0)
    except nvml.NVMLError as error:
        return GpuFault("", index, f"the driver does not answer for it ({error})")
    return GpuFault(gpu.uuid, index, "a faulty row of its memory could not be replaced") if failed else gpu


@contextmanager
def _nvml(library: Any) -> Iterator[Any]:
    nvml = _started(library)
    try:
        yield nvml
    finally:
        if nvml is not None:
            nvml.nvmlShutdown()


def _started(library: Any) -> Any:
    """Returns the initialised binding; ``None`` if the binding or the driver is missing."""
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
        persistent=_ask(nvml, lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)), None),
    )
    return replace(whole, slices=tuple(_slices(nvml, handle, whole))) if whole.mig else whole


def _slices(nvml: Any, handle: Any, whole: Gpu) -> Iterator[Gpu]:
    for place in range(_ask(nvml, partial(nvml.nvmlDeviceGetMaxMigDeviceCount, handle), 0)):
        part = _ask(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place), None)
        if part is not None:
            name = _text(_ask(nvml, partial(nvml.nvmlDeviceGetName, part), whole.name))
            yield replace(whole, uuid=_text(nvml.nvmlDeviceGetUUID(part)), name=name, **_state(nvml, part))


def _with_paths(nvml: Any, gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """Returns the GPU with its CPUs and its paths to the others of ``gpus``; a partitioned GPU has no paths."""
    handle = nvml.nvmlDeviceGetHandleByIndex(gpu.index)
    words = _ask(nvml, lambda: nvml.nvmlDeviceGetCpuAffinity(handle, -(-(os.cpu_count() or 1) // 64)), ())
    cpus = tuple(64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1)
    others = [] if gpu.mig else [other.index for other in gpus if other is not gpu]
    paths = [(other, _path(nvml, handle, nvml.nvmlDeviceGetHandleByIndex(other))) for other in others]
    return replace(gpu, cpus=cpus, paths=tuple(paths) if all(path for _, path in paths) else ())


def _path(nvml: Any, one: Any, other: Any) -> str:
    if _ask(nvml, lambda: nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK), 1) == 0:
        return NVLINK
    return _PATHS.get(_ask(nvml, lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one, other), -1), "")


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
    """Runs an NVML call that some GPUs or releases of the binding lack; returns ``otherwise`` if it fails."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return otherwise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True, slots=True)
class GpuReading:
    """State of one GPU at one moment; ``None``: NVML does not report the figure for this GPU or slice.

    Counters only grow, from an arbitrary start: the difference of two readings is the amount between them.
    """

    busy: float | None = None
    """Share of the driver's last period (1/6 to 1 s) in which a kernel ran, 0..1."""
    memory_busy: float | None = None
    """Share of that period in which device memory was read or written, 0..1."""
    sm_mhz: float | None = None
    sm_mhz_max: float | None = None
    watts: float | None = None
    """Power in watts; since Ampere the mean over a second."""
    joules: float | None = None
    """Counter of energy in joules."""
    pcie_sent: float | None = None
    """Counter of bytes to the host over PCIe."""
    pcie_received: float | None = None
    """Counter of bytes from the host over PCIe."""
    nvlink_sent: float | None = None
    """Counter of bytes sent over NVLink."""
    nvlink_received: float | None = None
    """Counter of bytes received over NVLink."""
    power_capped: float | None = None
    """1 if the driver throttles the clock for power, else 0."""
    hot: float | None = None
    """1 if the driver throttles the clock for heat, else 0."""
    celsius: float | None = None


class GpuReader:
    """Reads the same GPUs repeatedly; NVML stays open until ``close``."""

    def __init__(self, nvml: Any, handles: Mapping[str, Any]) -> None:
        """Receives the initialised binding and the GPUs' handles by UUID."""
        self._nvml = nvml
        self._gpus = [_Gauges(nvml, handle) for handle in handles.values()]
        self._watch = _FaultWatch(nvml, handles)

    def read(self) -> tuple[GpuReading, ...]:
        """Reads each GPU once."""
        return tuple(gpu.read() for gpu in self._gpus)

    def faults(self) -> tuple[GpuFault, ...]:
        """Returns the faults of the GPUs since the last call, or since they were opened."""
        return tuple(self._watch.look())

    def close(self) -> None:
        """Closes NVML; to be called once."""
        with suppress(self._nvml.NVMLError):
            self._watch.close()
            self._nvml.nvmlShutdown()


def open_gpus(uuids: Sequence[str], library: Any = None) -> GpuReader | None:
    """Opens a reader of these GPUs; ``None`` without a driver, or if one of them is not found.

    Args:
        uuids: values of ``Gpu.uuid``.
        library: the NVML binding; by default ``nvidia-ml-py``, if it is installed.
    """
    nvml = _started(library)
    if nvml is None:
        return None
    try:
        return GpuReader(nvml, {uuid: nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids})
    except nvml.NVMLError:
        nvml.nvmlShutdown()
        return None


_UNCORRECTED, _VOLATILE = 1, 0
"""``NVML_MEMORY_ERROR_TYPE_UNCORRECTED``, ``NVML_VOLATILE_ECC`` (errors since the driver was loaded)."""
_GONE = (15, 16)
"""``NVML_ERROR_GPU_IS_LOST``, ``NVML_ERROR_RESET_REQUIRED``."""


class _FaultWatch:
    """Detects the faults of some GPUs: XID events of the driver, and new uncorrectable memory errors."""

    def __init__(self, nvml: Any, handles: Mapping[str, Any]) -> None:
        self._nvml, self._handles = nvml, handles
        self._index = {
            uuid: int(_ask(nvml, partial(nvml.nvmlDeviceGetIndex, handle), place))
            for place, (uuid, handle) in enumerate(handles.items())
        }
        self._errors = {uuid: self._counted(handle) for uuid, handle in handles.items()}
        self._gone: set[str] = set()
        self._events = _ask(nvml, self._subscribe, None)

    def _subscribe(self) -> Any:
        events = self._nvml.nvmlEventSetCreate()
        for handle in self._handles.values():
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, events)
        return events

    def look(self) -> Iterator[GpuFault]:
        yield from self._xid_faults()
        for uuid, handle in self._handles.items():
            if uuid not in self._gone and (error := self._lost(handle)) is not None:
                self._gone.add(uuid)
                yield GpuFault(uuid, self._index[uuid], f"the driver does not answer for it ({error})")
            count = self._counted(handle)
            fault = gpu_faults.of_memory_errors(uuid, self._index[uuid], count - self._errors[uuid])
            self._errors[uuid] = max(count, self._errors[uuid])
            if fault is not None:
                yield fault

    def _xid_faults(self) -> Iterator[GpuFault]:
        """Yields the faults of the pending XID events, each once."""
        while self._events is not None:
            event = _ask(self._nvml, lambda: self._nvml.nvmlEventSetWait_v2(self._events, 0), None)
            if event is None:  # none is left: it answers NVML_ERROR_TIMEOUT
                return
            uuid = _text(_ask(self._nvml, partial(self._nvml.nvmlDeviceGetUUID, event.device), ""))
            fault = gpu_faults.of_xid(uuid, self._index.get(uuid, -1), int(event.eventData))
            if fault is not None and uuid in self._index:
                yield fault

    def _lost(self, handle: Any) -> Exception | None:
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except self._nvml.NVMLError as error:
            return error if getattr(error, "value", None) in _GONE else None
        return None

    def _counted(self, handle: Any) -> int:
        """Counts the uncorrectable memory errors since the driver was loaded; 0 if the GPU does not report them."""
        return int(_ask(self._nvml, lambda: self._nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE), 0))

    def close(self) -> None:
        if self._events is not None:
            self._nvml.nvmlEventSetFree(self._events)


_SM_CLOCK, _TEMPERATURE = 1, 0
"""``NVML_CLOCK_SM``, ``NVML_TEMPERATURE_GPU``."""
_FOR_POWER = 0x4 | 0x80
"""``nvmlClocksEventReasonSwPowerCap``, ``...HwPowerBrakeSlowdown``."""
_FOR_HEAT = 0x20 | 0x40
"""``nvmlClocksEventReasonSwThermalSlowdown``, ``...HwThermalSlowdown``."""
_ALL_LINKS = 0xFFFFFFFF
"""Scope of an NVLink field that sums over all links."""
_FIELDS = {
    "pcie_sent": (197, 0, 1.0),
    "pcie_received": (198, 0, 1.0),
    "nvlink_sent": (138, _ALL_LINKS, 1024.0),
    "nvlink_received": (139, _ALL_LINKS, 1024.0),
}
"""Counter of ``GpuReading`` -> (field, scope, bytes of its unit): ``NVML_FI_DEV_PCIE_COUNT_TX_BYTES``,
``..._RX_BYTES``, ``NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX``, ``..._RX``. (``nvmlDeviceGetPcieThroughput`` takes 20 ms
for each.)"""
_UNSIGNED_INT = 1
"""``NVML_VALUE_TYPE_UNSIGNED_INT``: a counter of 32 bits that wraps around to 0."""


def _utilisation(nvml: Any, handle: Any) -> dict[str, float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"busy": rates.gpu / 100.0, "memory_busy": rates.memory / 100.0}


def _reasons(nvml: Any, handle: Any) -> dict[str, float]:
    reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return {"power_capped": float(bool(reasons & _FOR_POWER)), "hot": float(bool(reasons & _FOR_HEAT))}


_GAUGES: tuple[Callable[[Any, Any], dict[str, float]], ...] = (
    _utilisation,
    lambda nvml, handle: {"sm_mhz": float(nvml.nvmlDeviceGetClockInfo(handle, _SM_CLOCK))},
    lambda nvml, handle: {"watts": nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0},
    lambda nvml, handle: {"joules": nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0},
    _reasons,
    lambda nvml, handle: {"celsius": float(nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE))},
)


class _Gauges:
    """NVML queries of one GPU; a query that the GPU refuses is not repeated."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._refused = (nvml.NVMLError, AttributeError)  # an older binding lacks a function
        self._questions = [*_GAUGES, self._counters]
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
        """Reads the GPU's counters. A 32-bit counter may wrap around once between two readings."""
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
