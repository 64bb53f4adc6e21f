"""Keeps imports from opening a GPU, and finds an import that does: a process with an open GPU is not forked for trials.

Some of torch's questions initialise CUDA. torchao asks two at import (0.18, torchao/prototype/mx_formats/kernels.py:167
and 1014): for Triton and for the compute capability; and transformers imports torchao. So the driver's library answers
them instead, which opens no GPU for computing.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import importlib.util
import os
import sys
from typing import Any, Callable, List, Optional, Tuple

DEVICE = "/dev/nvidia-uvm"
"""There where the machine has GPUs."""


def uses_gpu() -> bool:
    """Tells whether this process has initialised CUDA: until then its driver answers ``CUDA_ERROR_NOT_INITIALIZED``."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != 3)
    except (OSError, AttributeError):
        return False


class GpuOpenWatch:
    """While open, looks before and after each import statement that loads something whether a GPU has been opened.

    ``culprit`` is the innermost module whose import did, as "NAME, imported by NAME", or "NAME" where it did so before
    another import of its own; empty while none has.

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
        self._late = 0  # imports under way that began when it was open

    def __enter__(self) -> "GpuOpenWatch":
        if self._there and not self._opened():
            self._import = builtins.__import__
            builtins.__import__ = self._watched
        return self

    def __exit__(self, *_: object) -> None:
        if self._import is not None:
            builtins.__import__ = self._import
            self._import = None

    def _watched(self, name: str, *rest: Any, **named: Any) -> Any:
        before, was_open = len(sys.modules), self._opened()
        by = ((rest[0] if rest else named.get("globals")) or {}).get("__name__", "?")
        loading = getattr(getattr(sys.modules.get(by), "__spec__", None), "_initializing", False)
        if was_open and not self._late and loading:  # else a module called a function of it
            self.culprit = self.culprit or by
        self._late += was_open
        try:
            return self._import(name, *rest, **named)
        finally:
            self._late -= was_open
            if len(sys.modules) != before:  # what only looks up a loaded module has run nothing
                self._after()
                if not was_open and not self.culprit and self._opened():
                    self.culprit = "%s, imported by %s," % (name or "a module of its package", by)


Capability = Optional[Tuple[int, int]]


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


def _has_triton(capability: Tuple[int, int]) -> bool:
    """Answers as ``has_triton`` does on a GPU (torch 2.13, torch/utils/_triton.py:189)."""
    return capability >= (7, 0) and importlib.util.find_spec("triton") is not None


ANSWERS = (
    ("torch.cuda", "get_device_capability", lambda told: told),
    ("torch.utils._triton", "has_triton", _has_triton),
)
"""Module and name of a question, and its answer by the compute capability."""


class CapabilityByDriver:
    """Makes torch report the driver's compute capability between ``put`` and ``take_back``, also to functions already
    imported.

    ``told`` is the driver's answer; ``None`` leaves torch unchanged.
    """

    def __init__(self, capability: Capability) -> None:
        self._told = capability
        self._own: List[Tuple[Any, str, Any]] = []

    def put(self) -> None:
        """Replaces the functions as soon as their modules are imported; may be called again and again."""
        replaced = [module for module, _, _ in self._own]
        for name, question, answer in ANSWERS:
            module: Any = sys.modules.get(name)
            if self._told is not None and module not in replaced and hasattr(module, question):
                self._own.append((module, question, getattr(module, question)))
                setattr(module, question, self._answering(getattr(module, question), answer))

    def _answering(self, own: Any, by_capability: Callable[[Any], Any]) -> Any:
        @functools.wraps(own)
        def answer(*args: Any, **kwargs: Any) -> Any:
            return own(*args, **kwargs) if self._told is None else by_capability(self._told)

        return answer

    def take_back(self) -> None:
        """Puts torch's own functions back."""
        self._told = None
        for module, question, own in self._own:
            setattr(module, question, own)
