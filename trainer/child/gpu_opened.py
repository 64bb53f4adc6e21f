"""Keeps imports from opening a GPU, and finds an import that does: a process with an open GPU is not forked for trials.

``torch.cuda.get_device_capability`` initialises CUDA. torchao calls it at import (0.18,
torchao/prototype/mx_formats/kernels.py:1014), and transformers imports torchao. So the driver's library answers the
call instead, which opens no GPU for computing.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import os
import sys
from types import TracebackType
from typing import Any, Callable, Optional, Tuple, Type

DEVICE = "/dev/nvidia-uvm"
"""Every CUDA context opens this device; the driver's library for questions about GPUs does not."""


def uses_gpu() -> bool:
    """Tells whether this process has opened a GPU for computing."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink("/proc/self/fd/" + name).startswith(DEVICE):
                return True
    return False


class GpuOpenWatch:
    """Checks after each import statement that loads a module whether a GPU is open.

    ``culprit`` is the innermost module whose import opened a GPU, as "NAME, imported by NAME"; else empty. Imports by
    ``importlib.import_module`` are seen by the import statements inside them.

    Args:
        opened: tells whether a GPU is open.
        there: whether the machine has GPUs; without GPUs nothing is watched.
        after: called after each import statement that loads a module.
    """

    def __init__(
        self,
        opened: Callable[[], bool] = uses_gpu,
        there: Optional[bool] = None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self.culprit = ""
        self._after = after
        self._opened = opened
        self._there = os.path.exists(DEVICE) if there is None else there
        self._import: Any = None

    def __enter__(self) -> "GpuOpenWatch":
        if self._there and not self._opened():
            self._import = builtins.__import__
            builtins.__import__ = self._watched
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._import is not None:
            builtins.__import__ = self._import
            self._import = None

    def _watched(self, name: str, *rest: Any, **named: Any) -> Any:
        before = len(sys.modules)
        try:
            return self._import(name, *rest, **named)
        finally:
            loaded = len(sys.modules) != before  # what only looks up a loaded module has run nothing
            if loaded:
                self._after()
            if not self.culprit and loaded and self._opened():
                importing = (rest[0] if rest else named.get("globals")) or {}
                by = importing.get("__name__", "?")
                self.culprit = "%s, imported by %s," % (name or "a module of its package", by)


Capability = Optional[Tuple[int, int]]
NAME = "get_device_capability"


def driver_capability(load: Callable[[str], Any] = ctypes.CDLL) -> Capability:
    """Returns the compute capability of the machine's GPUs; ``None`` if they differ or the driver does not know it."""
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
    """Makes torch report the driver's compute capability between ``put`` and ``take_back``, also to functions already
    imported.

    ``told`` is the driver's answer; ``None`` leaves torch unchanged.
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
