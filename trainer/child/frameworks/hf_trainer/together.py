"""Runs collective operations around a cycle, so that all ranks take the same decision."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from accelerate.utils import gather_object

from ...contract import Phase
from ...guard import GuardReading, worst
from ...memory import highest
from ...meter import Meter


class Together:
    """The ranks of a trial; with one rank every method returns its input.

    Every method is a collective: all ranks call it, in the same order.
    """

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.size = int(accelerator.num_processes)

    def wait(self) -> None:
        """Waits for all ranks; within a cycle the time counts as phase ``wait``."""
        if self.size > 1:
            self._accelerator.wait_for_everyone()

    def all(self, value: Any) -> List[Any]:
        """Returns every rank's ``value``, by rank."""
        return [value] if self.size == 1 else list(gather_object([value]))

    def total(self, value: float) -> float:
        """Returns the sum over ranks."""
        return float(sum(self.all(value)))

    def verdict(self, own: GuardReading) -> GuardReading:
        """Returns the worst clock-guard reading of any rank, with this rank's CPU seconds, so that all ranks accept or
        repeat a cycle together."""
        return worst(own, self.all(own))

    def slowest(self, seconds: float, phases: Mapping[str, float]) -> Tuple[float, Dict[str, float]]:
        """Returns the ranks' largest ``seconds``, and this rank's ``phases`` with the difference added to ``wait``.

        All ranks begin after one barrier and end after another, so the difference is only the time until a rank goes on
        after a barrier. ``phases`` are seconds by phase; they sum to ``seconds``.
        """
        longest = max(self.all(seconds))
        times = dict(phases)
        if longest > seconds:
            times[Phase.WAIT.value] = times.get(Phase.WAIT.value, 0.0) + longest - seconds
        return longest, times

    def highest(self, own: Any) -> Any:
        """Returns the largest value of each field of all ranks' peaks."""
        whole = None
        for peaks in self.all(own):
            whole = highest(whole, peaks)
        return whole


def install_waits(module: Any, accelerator: Any, meter: Meter) -> None:
    """Attributes a rank's time in the trainer's own collectives, other than broadcasts, to ``wait``.

    Gradients are reduced during the backward pass and belong to the update.

    Args:
        module: module of the trainer's class, with the functions it imported by name.
    """
    for name in ("gather", "gather_for_metrics", "reduce", "wait_for_everyone"):
        setattr(accelerator, name, meter.wrap(getattr(accelerator, name), Phase.WAIT))
    for name in ("gather", "gather_object"):
        if callable(getattr(module, name, None)):
            setattr(module, name, meter.wrap(getattr(module, name), Phase.WAIT))
