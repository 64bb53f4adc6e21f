"""Chooses the GPUs of each trial: those the study holds, without GPUs with a fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.errors import MachineError
from autotune.machine import gpu_choice, gpu_faults
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import Gpu
from autotune.wording.numbers import counted


class GpuPool:
    """Remembers faults, and the first trial's kind of GPU, as long as the tuner runs."""

    def __init__(self) -> None:
        self._faults: dict[str, GpuFault] = {}
        self._first: Gpu | None = None

    def quarantine(self, faults: Iterable[GpuFault]) -> None:
        """Records faults: later trials use other GPUs, or one with a temporary fault if there are too few."""
        for fault in faults:
            known = self._faults.get(fault.uuid)
            if known is None or not known.lasts:
                self._faults[fault.uuid] = fault

    def held(self, visible: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
        """Returns the GPUs of the next trial, in the order of ``visible``.

        Raises:
            MachineError: fewer than ``count`` can be used, or their kind has changed.
        """
        fit = [gpu for gpu in visible if not self._lasts(gpu)]
        if len(fit) < count <= len(visible):
            unfit = gpu_faults.sentence([self._faults[gpu.uuid] for gpu in visible if self._lasts(gpu)])
            raise MachineError(
                f"the study needs {counted(count, 'GPU')}, and {len(fit)} can be used; {unfit}. Reset it "
                "(nvidia-smi --gpu-reset, or restart the machine) and start the study again"
            )
        best = sorted(fit, key=lambda gpu: gpu.uuid in self._faults)[:count]
        chosen = gpu_choice.held([gpu for gpu in fit if gpu in best], count)
        self._first = self._first or (chosen[0] if chosen else None)
        if changed := next((gpu for gpu in chosen if self._first and not gpu_choice.alike(self._first, gpu)), None):
            was = "" if self._first is None else gpu_choice.kind_of(self._first)
            raise MachineError(
                f"GPU {changed.index} is {gpu_choice.kind_of(changed)} now, and the study began on {was}: "
                "was its MIG mode changed? Undo that, or begin a new study"
            )
        return chosen

    def _lasts(self, gpu: Gpu) -> bool:
        fault = self._faults.get(gpu.uuid)
        return fault is not None and fault.lasts
