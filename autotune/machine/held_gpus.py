"""Restricts this process and its trials to the GPUs of a study."""

from __future__ import annotations

import os
from collections.abc import Callable

from autotune.errors import UsageError
from autotune.machine import gpu_choice, gpu_faults, hardware
from search_spaces.configuration import Resources


def usable_resources(
    talk: Callable[[str], None], gpus: int | None = None, asked: str = "", at_once: int = 1
) -> Resources:
    """Returns the resources of one trial on this machine; restricts this process and its trials to the study's GPUs.

    Args:
        talk: receives a sentence if visible GPUs are left out.
        gpus: GPUs of one trial; ``None`` is all of one kind, 0 a run on the CPU.
        asked: name of the option that sets the number, if not ``--gpus``.
        at_once: trials side by side.

    Raises:
        UsageError: there are not enough GPUs.
        MachineError: the GPUs cannot be read, or not be used.
    """
    visible = hardware.visible_gpus()
    if at_once > 1 and visible and gpus is None:
        raise UsageError(f"--at-once {at_once}: say with --gpus how many GPUs one trial has")
    wanted = gpus if at_once == 1 or not gpus else gpus * at_once
    if at_once > 1 and wanted:
        asked = asked or f"--gpus {gpus} --at-once {at_once}"
    chosen = gpu_choice.choose(visible, wanted, asked)
    if chosen.said:
        talk(chosen.said)
    if unfit := hardware.unfit_gpus():
        talk(f"not used: {gpu_faults.sentence(unfit)}")
    if visible:
        os.environ.update(gpu_choice.environment(chosen.gpus))
    return hardware.resources(gpus=chosen.gpus if at_once == 1 or gpus is None else chosen.gpus[:gpus])
