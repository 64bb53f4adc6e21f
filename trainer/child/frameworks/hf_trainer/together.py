"""Collective operations around a cycle, so that all ranks take the same decision."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from accelerate.utils import gather_object

from ...contract import Phase
from ...guard import GuardReading, worst
from ...memory import highest
from ...meter import Meter


class Together:
    """The ranks of a trial, as one of ``size``; with one rank every method returns its input.

    Every method is a collective: all ranks call it, in the same order.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.size = int(accelerator.num_processes)

    def wait(self) -> None:
        """Barrier over all ranks; within a cycle it counts as phase ``wait``."""
        if self.size > 1:
            self._accelerator.wait_for_everyone()

    def all(self, value: Any) -> List[Any]:
        """Every rank's ``value``, by rank."""
        return [value] if self.size == 1 else list(gather_object([value]))

    def total(self, value: float) -> float:
        """Sum over ranks."""
        return float(sum(self.all(value)))

    def verdict(self, own: GuardReading) -> GuardReading:
        """The worst clock-guard reading of any rank, with this rank's CPU seconds: all ranks accept a cycle, or all
        repeat it."""
        return worst(own, self.all(own))

    def slowest(self, seconds: float, phases: Mapping[str, float]) -> Tuple[float, Dict[str, float]]:
        """A cycle's seconds, the same on every rank, and this rank's phases of them.

        All ranks begin behind one barrier and end behind another: what their clocks still differ by is when the
        machine let each one go on after a barrier, and is waiting.

        Args:
            phases: seconds by phase; they sum to ``seconds``.
        """
        longest = max(self.all(seconds))
        times = dict(phases)
        if longest > seconds:
            times[Phase.WAIT.value] = times.get(Phase.WAIT.value, 0.0) + longest - seconds
        return longest, times

    def highest(self, own: Any) -> Any:
        """Peaks, field by field the largest over all ranks."""
        whole = None
        for peaks in self.all(own):
            whole = highest(whole, peaks)
        return whole


def install_waits(module: Any, accelerator: Any, meter: Meter) -> None:
    """Count as ``wait`` what a rank spends in collectives of the trainer's own code; a broadcast starts nothing new.

    Gradients are reduced inside the backward pass, beside it where the framework can, and belong to the update.

    Args:
        module: where the trainer's class is defined; it holds functions it imported by name.
        accelerator: its methods are wrapped on the object.
    """
    for name in ("gather", "gather_for_metrics", "reduce", "wait_for_everyone"):
        setattr(accelerator, name, meter.wrap(getattr(accelerator, name), Phase.WAIT))
    for name in ("gather", "gather_object"):
        if callable(getattr(module, name, None)):
            setattr(module, name, meter.wrap(getattr(module, name), Phase.WAIT))
