"""Runs DeepSpeed without a GPU: replaces the hardware queries of accelerate, transformers and DeepSpeed.

This file is also copied unchanged into an exported configuration, so it imports nothing of ours.
"""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import Any, Dict, Tuple

SUPPORTED: Dict[str, Tuple[Tuple[int, int], Tuple[int, int]]] = {
    "deepspeed": ((0, 19), (0, 20)),
    "accelerate": ((1, 15), (1, 16)),
}
"""Package -> versions whose internals this module knows: from the first, below the second."""


class CpuDeepSpeedError(ValueError):
    """DeepSpeed cannot run on a CPU here; the message gives the reason."""


def before_import() -> None:
    """Sets variables that torch, accelerate and TRL read at import; call it before their import.

    Raises CpuDeepSpeedError without a rank in the environment.
    """
    if "LOCAL_RANK" not in os.environ:
        raise CpuDeepSpeedError("zero_stage needs its processes started by torchrun, be it one")
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    os.environ["DS_ACCELERATOR"] = "cpu"


def after_import() -> None:
    """Patches accelerate and DeepSpeed; call it between the import of TRL and the creation of a ``GRPOConfig``.
    ``use_cpu`` must be false: it disables DeepSpeed.

    Raises CpuDeepSpeedError for a missing package, or a version with unknown internals.
    """
    check_versions()
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    def prepare_backend(*_: Any, **__: Any) -> Tuple[str, Any]:
        return "gloo", DistributedType.MULTI_CPU

    _replace(PartialState, "_prepare_backend", prepare_backend)
    # Without ``use_cpu`` it asks for a GPU before it allows bf16; DeepSpeed's own bf16 runs on any CPU.
    arguments = importlib.import_module("transformers.training_args")
    _replace(arguments, "is_torch_bf16_gpu_available", lambda: True)
    # Compiles a C++ kernel for inference, whose shared memory stays behind when a rank is killed.
    _replace(importlib.import_module("deepspeed.comm.torch"), "build_shm_op", lambda: None)


def check_versions() -> None:
    """Raises ``CpuDeepSpeedError`` for a package whose version is not in ``SUPPORTED``."""
    for package, (low, high) in SUPPORTED.items():
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise CpuDeepSpeedError("zero_stage needs the package %s in the training environment" % package) from None
        parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if not low <= parts < high:
            window = "%s >= %d.%d and < %d.%d" % (package, *low, *high)
            have = "%s %s is installed" % (package, version)
            raise CpuDeepSpeedError("%s; ZeRO on a CPU is known to work with %s" % (have, window))


def _replace(place: Any, name: str, value: Any) -> None:
    if not hasattr(place, name):
        raise CpuDeepSpeedError("ZeRO cannot run on a CPU here: %s has no %s" % (place.__name__, name))
    setattr(place, name, value)
