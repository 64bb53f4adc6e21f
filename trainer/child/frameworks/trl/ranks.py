"""Prepares training processes for DeepSpeed, before TRL is imported and right after.

Does nothing on CUDA, which accelerate and DeepSpeed support. On a CPU it applies patches (``cpu_deepspeed``).
"""

from __future__ import annotations

from ...checks import refusing
from ...contract import TrialSpec
from . import cpu_deepspeed


def on_cpu(spec: TrialSpec) -> bool:
    """Tells whether DeepSpeed trains without a GPU; ``use_cpu`` must then be unset, as it turns DeepSpeed off."""
    return spec.device == "cpu" and bool(spec.settings.get("deepspeed"))


def before_import(spec: TrialSpec) -> None:
    """Sets variables that torch, accelerate and TRL read at import; call it before.

    Raises IllegalSettingError without a rank in the environment.
    """
    if on_cpu(spec):
        with refusing():
            cpu_deepspeed.before_import()


def after_import(spec: TrialSpec) -> None:
    """Patches the imported packages; call it before anything is built.

    Raises IllegalSettingError if DeepSpeed is missing, or has unknown internals.
    """
    if on_cpu(spec):
        with refusing():
            cpu_deepspeed.after_import()
