"""Reads a trial's place (its slot, GPUs and machine) from the notes that its attempt recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.child.contract import NoteRecord

PLACE = "place"
"""Name of the note on the slot of a trial: ``where`` is its name, ``node`` its machine if the study has several."""
GPUS = "gpus"
"""Name of the note on the GPUs of a trial: ``held`` lists the ``index`` and ``uuid`` of each."""


@dataclass(frozen=True)
class HeldGpu:
    """A GPU that a trial holds."""

    index: int
    """Number of the GPU on its machine, as NVML and ``nvidia-smi`` count."""
    uuid: str


@dataclass(frozen=True)
class TrialPlace:
    """Slot where a trial runs or ran. All fields are empty for a trial that has the machine to itself and no GPU."""

    name: str = ""
    """Name of the slot among several used side by side: ``GPU 3``, on a cluster ``n1 GPU 3``. Empty if only one."""
    gpus: tuple[HeldGpu, ...] = ()
    node: str = ""
    """Name of the machine; empty if the study has only one."""

    @property
    def title(self) -> str:
        """Name of the slot for people: ``GPU 3``, ``GPUs 2, 3``, ``CPUs 0-3``; empty if neither name nor GPUs are
        recorded."""
        numbers = ", ".join(str(gpu.index) for gpu in self.gpus)
        return self.name or (f"GPU{'s' if len(self.gpus) > 1 else ''} {numbers}" if numbers else "")

    @property
    def short(self) -> str:
        """``title`` followed by the node, unless there is one node or the title already names it."""
        node = f"node {self.node}" if self.node and not self.name.startswith(f"{self.node} ") else ""
        return ", ".join(part for part in (self.title, node) if part)

    @property
    def whole(self) -> str:
        """``short`` followed by the UUID of each GPU."""
        uuids = ", ".join(gpu.uuid for gpu in self.gpus)
        return f"{self.short} ({uuids})" if uuids else self.short


def place_of(notes: Sequence[NoteRecord]) -> TrialPlace:
    """Returns the place of a trial from the notes of its attempt."""
    found = {note.name: note.data for note in notes if note.name in (PLACE, GPUS)}
    where = found.get(PLACE, {})
    return TrialPlace(
        name=str(where.get("where") or ""),
        gpus=tuple(HeldGpu(int(gpu["index"]), str(gpu["uuid"])) for gpu in found.get(GPUS, {}).get("held", ())),
        node=str(where.get("node") or ""),
    )
