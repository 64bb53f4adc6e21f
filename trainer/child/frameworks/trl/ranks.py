"""What training processes with DeepSpeed need to be in place before TRL is imported, and right after.

On CUDA nothing: accelerate and DeepSpeed are at home there. On a CPU they are helped along (``cpu_deepspeed``).
"""

from __future__ import annotations

from ...contract import TrialSpec
from ...failures import IllegalSettingError
from . import cpu_deepspeed


def on_cpu(spec: TrialSpec) -> bool:
    """Whether DeepSpeed trains without a GPU: then nothing may say ``use_cpu``, which turns DeepSpeed off."""
    return spec.device == "cpu" and bool(spec.settings.get("deepspeed"))


def before_import(spec: TrialSpec) -> None:
    """Call before torch, accelerate or TRL is imported: they read the environment then.

    Raises:
        IllegalSettingError: nobody said which rank this is.
    """
    if on_cpu(spec):
        try:
            cpu_deepspeed.before_import()
        except cpu_deepspeed.CpuDeepSpeedError as error:
            raise IllegalSettingError(str(error)) from error


def after_import(spec: TrialSpec) -> None:
    """Call when TRL is imported and nothing is built yet.

    Raises:
        IllegalSettingError: DeepSpeed is missing, or of a version whose inside is not known here.
    """
    if on_cpu(spec):
        try:
            cpu_deepspeed.after_import()
        except cpu_deepspeed.CpuDeepSpeedError as error:
            raise IllegalSettingError(str(error)) from error
