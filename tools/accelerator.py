"""Chooses the training stack for this machine: with an NVIDIA GPU, or on the CPU. Standard library only.

Read before anything is downloaded, so that a driver too old for the GPU stack costs no one 5 GB first.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MINIMUM_DRIVER = 580
"""First driver branch with CUDA 13, for which the pinned vLLM and torch are built."""


class Stack(StrEnum):
    """The lock file of the training environment: ``requirements/train-<value>.txt``."""

    CPU = "cpu"
    GPU = "gpu"


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver's facts about this machine."""

    version: str
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """The stack to install, or ``None`` if none fits; ``sentence`` gives the reason."""

    stack: Stack | None
    sentence: str


def choose(driver: Driver | None) -> Choice:
    """Chooses the stack for a machine with this ``driver``; ``None`` means no NVIDIA GPU."""
    if driver is None or not driver.devices:
        return Choice(Stack.CPU, "no NVIDIA GPU here: trials run on the CPU")
    gpus = f"{len(driver.devices)} x {driver.devices[0]}"
    branch = driver.version.split(".")[0]
    if not branch.isdigit():
        return Choice(None, f"{gpus}: the driver calls its version {driver.version!r}, which is none. {WAYS_OUT}")
    if int(branch) < MINIMUM_DRIVER:
        return Choice(
            None,
            f"{gpus}: driver {driver.version} is too old for the GPU stack, which needs CUDA 13 and driver "
            f"{MINIMUM_DRIVER} or newer. Nothing was downloaded. {WAYS_OUT}",
        )
    return Choice(Stack.GPU, f"{gpus}, driver {driver.version}: trials run on the GPU")


WAYS_OUT = (
    f"Update the driver to {MINIMUM_DRIVER} or newer, or name your own training environment with "
    "PYTHON=/path/to/bin/python, or run on the CPU with CPU=1."
)


def read_driver() -> Driver | None:
    """Reads the driver by nvidia-smi, or by NVML without nvidia-smi; ``None`` without a working driver."""
    return _ask_nvidia_smi() if shutil.which("nvidia-smi") else _ask_nvml(_load_nvml)


def _ask_nvidia_smi() -> Driver | None:
    command = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [line.split(",", 1) for line in answer.stdout.splitlines() if "," in line]
    if answer.returncode != 0 or not rows:
        return None
    return Driver(rows[0][0].strip(), tuple(name.strip() for _, name in rows))


def _load_nvml() -> ctypes.CDLL:
    return ctypes.CDLL("libnvidia-ml.so.1")


def _ask_nvml(load: Callable[[], ctypes.CDLL]) -> Driver | None:
    try:
        nvml = load()
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        version = ctypes.create_string_buffer(96)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        if nvml.nvmlSystemGetDriverVersion(version, ctypes.c_uint(96)) != 0:
            return None
        return Driver(version.value.decode("ascii", "replace"), tuple(_name(nvml, i) for i in range(count.value)))
    finally:
        nvml.nvmlShutdown()


def _name(nvml: ctypes.CDLL, index: int) -> str:
    handle = ctypes.c_void_p()
    name = ctypes.create_string_buffer(96)
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) != 0:
        return "GPU"
    if nvml.nvmlDeviceGetName(handle, name, ctypes.c_uint(96)) != 0:
        return "GPU"
    return name.value.decode("utf-8", "replace")
