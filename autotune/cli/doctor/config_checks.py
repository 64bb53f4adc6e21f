"""The user's configuration: every fault of it, before anything is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.cli.doctor.findings import Finding, Verdict
from autotune.domain import Resources
from autotune.errors import AutotuneError, UsageError
from autotune.machine import gpu_choice, hardware
from autotune.specification.config_faults import Faults
from autotune.specification.request import Request
from autotune.wording.numbers import counted

CONFIG = "config"
"""What these findings are called."""


def check_config(request: Request, look: Callable[[Request, Resources], Faults]) -> list[Finding]:
    """A problem for each fault, a warning for what ``start`` has to be given beside the configuration.

    Args:
        request: with the configuration, as ``start`` would be asked.
        look: tells its faults on a machine; ``wiring.config_faults``.

    Raises:
        UsageError: there are not so many GPUs as the request is to hold.
    """
    name = request.config_name
    try:
        chosen = gpu_choice.choose(hardware.visible_gpus(), request.gpus)
        found = look(request, replace(hardware.resources(gpus=chosen.gpus), framework=request.framework))
    except UsageError:
        raise
    except AutotuneError as error:
        return [Finding("training", Verdict.PROBLEM, f"{name} cannot be checked: {error}")]
    if found.sentences:
        return [Finding(CONFIG, Verdict.PROBLEM, sentence) for sentence in found.sentences]
    if found.lacking:
        return [Finding(CONFIG, Verdict.WARNING, found.lacking)]
    where = counted(len(chosen.gpus), "GPU") if chosen.gpus else "a CPU"
    return [Finding(CONFIG, Verdict.OK, f"{name}: read, and legal on {where}")]
