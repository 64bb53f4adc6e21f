"""Restricts this process and its trials to the GPUs of a study."""

from __future__ import annotations

import os
from collections.abc import Callable

from autotune.machine import gpu_choice, gpu_faults, hardware
from search_spaces.configuration import Resources


def usable_resources(talk: Callable[[str], None], gpus: int | None = None, asked: str = "") -> Resources:
    """This machine with the GPUs a study holds; from here on this process and its trials see no others.

    Args:
        talk: told where not every GPU is among them.
        gpus: how many; ``None`` is all of one kind, 0 a run on the CPU.
        asked: who says so, if not ``--gpus``.

    Raises:
        UsageError: there are not so many.
        MachineError: they cannot be read, or not be used.
    """
    visible = hardware.visible_gpus()
    chosen = gpu_choice.choose(visible, gpus, asked)
    if chosen.said:
        talk(chosen.said)
    if unfit := hardware.unfit_gpus():
        talk(f"not used: {gpu_faults.sentence(unfit)}")
    if visible:
        os.environ.update(gpu_choice.environment(chosen.gpus))
    return hardware.resources(gpus=chosen.gpus)
