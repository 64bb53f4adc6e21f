"""Answers torch's question for the compute capability by the driver's library, which opens no GPU for computing.

``torch.cuda.get_device_capability`` initialises CUDA. torchao asks it when it is imported (0.18,
torchao/prototype/mx_formats/kernels.py:1014), and transformers imports torchao. A process that has opened a GPU cannot
be forked for trials.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, Callable, Optional, Tuple

Capability = Optional[Tuple[int, int]]
NAME = "get_device_capability"


def driver_capability(load: Callable[[str], Any] = ctypes.CDLL) -> Capability:
    """Compute capability of the machine's GPUs; ``None`` if they differ or the driver does not say."""
    try:
        nvml = load("libnvidia-ml.so.1")
        return _capability(nvml) if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):  # no driver, or one without such a function
        return None


def _capability(nvml: Any) -> Capability:
    found = set()
    try:
        count = ctypes.c_uint()
        failed = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            failed = failed or nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
            numbers = ctypes.byref(major), ctypes.byref(minor)
            failed = failed or nvml.nvmlDeviceGetCudaComputeCapability(handle, *numbers)
            found.add((major.value, minor.value))
    finally:
        nvml.nvmlShutdown()
    return found.pop() if len(found) == 1 and not failed else None


class CapabilityByDriver:
    """Between ``put`` and ``take_back`` torch tells the driver's answer, afterwards its own, whoever kept the function.

    Args:
        told: the driver's answer; with ``None`` torch is left alone.
    """

    def __init__(self, told: Capability) -> None:
        self._told = told
        self._own: Optional[Callable[..., Any]] = None

    def put(self) -> None:
        """Replaces the function as soon as ``torch.cuda`` is imported; may be called again and again."""
        cuda: Any = sys.modules.get("torch.cuda")
        if self._told is None or self._own is not None or not hasattr(cuda, NAME):
            return
        own = self._own = getattr(cuda, NAME)

        @functools.wraps(own)
        def answer(*args: Any, **kwargs: Any) -> Any:
            return own(*args, **kwargs) if self._told is None else self._told

        setattr(cuda, NAME, answer)

    def take_back(self) -> None:
        """Puts torch's own function back."""
        self._told = None
        if self._own is not None:
            setattr(sys.modules["torch.cuda"], NAME, self._own)
