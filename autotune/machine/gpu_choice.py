"""Selects the GPUs of a study: all visible ones of one kind, or the requested number; keeps its trials to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import MachineError, UsageError
from autotune.machine import gpu_faults, hardware
from autotune.machine.hardware import slow_paths
from autotune.machine.nvml import Gpu
from autotune.wording.numbers import counted, format_size
from search_spaces.configuration import Resources

ALIKE = 0.01
"""Share by which the memory of GPUs of one kind may differ, because the memory that drivers reserve varies."""
CHOOSES = "CUDA_VISIBLE_DEVICES can choose others"
ONE_SLICE = "a process sees one slice of a GPU (MIG) only, and trials on it cannot share imports"


ELSEWHERE = "`plan` and `doctor --gpu` take a --config for GPUs that are elsewhere"


@dataclass(frozen=True)
class GpuSelection:
    """The GPUs of a study, with a message if some visible ones are omitted."""

    gpus: tuple[Gpu, ...]
    said: str = ""


def choose(visible: Sequence[Gpu], wanted: int | None = None, option: str = "") -> GpuSelection:
    """Selects the GPUs of a study.

    Ranks wait for each other, so that GPUs of different kinds would all run at the pace and with the memory of the
    weakest. So only the most numerous kind is used; among equals, the one with the most memory. A process sees at most
    one slice of a GPU (MIG).

    Args:
        visible: GPUs in the order of their numbers.
        wanted: number of GPUs; ``None`` is all of one kind, 0 a run on the CPU.
        option: name of the option that sets the number, if not ``--gpus``; error messages begin with it.

    Raises:
        UsageError: there are not enough GPUs of one kind.
        MachineError: CUDA can use none of them.
    """
    option = option or f"--gpus {wanted}"
    if wanted == 0:
        return GpuSelection((), f"{option}: trials run on the CPU, {_count(visible)} left alone" if visible else "")
    if not visible:
        if wanted is None:
            return GpuSelection(())
        raise UsageError(f"{option}: no GPU is visible here; {ELSEWHERE}")
    kinds = _kinds(visible)
    kind = max(kinds, key=lambda gpus: (_usable(gpus), gpus[0].memory))  # of equals the first
    if _usable(kind) == 0:
        raise MachineError(f"GPU {kind[0].index} can only be used in slices (MIG mode) and has none; turn the mode off")
    if wanted is not None and wanted > _usable(kind):
        raise UsageError(f"{option}: {_lacking(kinds, kind)}")
    held = tuple(kind[: _usable(kind) if wanted is None else wanted])
    return GpuSelection(held, "" if len(held) == len(visible) else _reduced(visible, held, kinds, wanted))


def held(visible: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
    """Returns the first ``count`` visible GPUs. Raises ``MachineError`` if the study began with more GPUs than that."""
    if len(visible) < count:
        raise MachineError(f"the study holds {counted(count, 'GPU')}, and {_count(visible)} visible now")
    return tuple(visible[:count])


def environment(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Returns environment variables that make a process see exactly ``gpus``, in this order. By default CUDA numbers
    the fastest first, the driver by bus."""
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.cuda_name for gpu in gpus), **order}


def kind_of(gpu: Gpu) -> str:
    """Describes the kind of a GPU: ``NVIDIA H100 80GB HBM3 (80.0 GiB)``."""
    return f"{gpu.name} ({format_size(gpu.memory)})"


def _kinds(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Returns the GPUs grouped by kind, in order of each group's first."""
    kinds: list[list[Gpu]] = []
    for gpu in gpus:
        found = next((kind for kind in kinds if alike(kind[0], gpu)), None)
        if found is None:
            kinds.append([gpu])
        else:
            found.append(gpu)
    return kinds


def alike(one: Gpu, other: Gpu) -> bool:
    """Tells whether two GPUs are of one kind: equal name, compute capability and MIG mode, and almost equal memory."""
    same = (one.name, one.compute_capability, one.mig) == (other.name, other.compute_capability, other.mig)
    return same and abs(one.memory - other.memory) <= ALIKE * max(one.memory, other.memory)


def _usable(kind: Sequence[Gpu]) -> int:
    """Counts the GPUs that one trial can use; 0 in MIG mode without slices."""
    if not kind[0].mig:
        return len(kind)
    return 1 if kind[0].cuda_name == kind[0].uuid else 0


def _lacking(kinds: Sequence[Sequence[Gpu]], kind: Sequence[Gpu]) -> str:
    if len(kinds) > 1:
        text = " and ".join(f"{len(gpus)} × {kind_of(gpus[0])}" for gpus in kinds)
        return f"a trial uses GPUs of one kind only, and there are {text}"
    return ONE_SLICE if kind[0].mig else f"{_count(kind)} visible"


def _reduced(visible: Sequence[Gpu], held: Sequence[Gpu], kinds: Sequence[Sequence[Gpu]], wanted: int | None) -> str:
    places = ", ".join(gpu.cuda_name for gpu in held)
    used = f"of {len(visible)} visible GPUs, {len(held)} will be used: {places}, {kind_of(held[0])}"
    if held[0].mig:
        return f"{used}; {ONE_SLICE}; {CHOOSES}"
    if wanted is not None and len(held) < next(len(kind) for kind in kinds if held[0] in kind):
        return f"{used}; {CHOOSES}"
    others = ", ".join(dict.fromkeys(kind_of(kind[0]) for kind in kinds if kind[0] != held[0]))
    return f"{used}; a trial uses GPUs of one kind only, and the others are {others}; {CHOOSES}"


def _count(gpus: Sequence[Gpu]) -> str:
    return f"{counted(len(gpus), 'GPU')} {'is' if len(gpus) == 1 else 'are'}"


def usable_resources(
    talk: Callable[[str], None], gpus: int | None = None, asked: str = "", at_once: int = 1
) -> Resources:
    """Returns the resources of one trial on this machine; restricts this process and its trials to the study's GPUs.

    Args:
        talk: receives a sentence if visible GPUs are not used, and one if a trial's GPUs exchange data slowly.
        gpus: GPUs of one trial; ``None`` is all of one kind, 0 a run on the CPU.
        asked: name of the option that sets the number, if not ``--gpus``.
        at_once: number of parallel trials.

    Raises:
        UsageError: there are not enough GPUs.
        MachineError: the GPUs cannot be read or used.
    """
    visible = hardware.visible_gpus()
    if at_once > 1 and visible and gpus is None:
        raise UsageError(f"--at-once {at_once}: say with --gpus how many GPUs one trial has")
    wanted = gpus if at_once == 1 or not gpus else gpus * at_once
    if at_once > 1 and wanted:
        asked = asked or f"--gpus {gpus} --at-once {at_once}"
    chosen = choose(visible, wanted, asked)
    if chosen.said:
        talk(chosen.said)
    if unfit := hardware.unfit_gpus():
        talk(f"not used: {gpu_faults.sentence(unfit)}")
    if visible:
        os.environ.update(environment(chosen.gpus))
    held = chosen.gpus if at_once == 1 or gpus is None else chosen.gpus[:gpus]
    if slow := slow_paths(held):
        talk(f"note: {slow}")
    return hardware.resources(gpus=held)
