"""The place where a trial runs: on which GPUs of which machine, as its notes say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.child.contract import NoteRecord

PLACE = "place"
"""Note of a trial that ran in one of several places: ``where``, and on which ``node`` if there are several."""
GPUS = "gpus"
"""Note of a trial on GPUs: ``held``, each with its ``index`` and ``uuid``."""


@dataclass(frozen=True)
class HeldGpu:
    """A GPU of a trial."""

    index: int
    """As NVML and ``nvidia-smi`` count on its machine."""
    uuid: str


@dataclass(frozen=True)
class TrialPlace:
    """The place where a trial runs or ran; all fields empty if it has its machine to itself and no GPU."""

    name: str = ""
    """One of the places side by side, each with another: ``GPU 3``, on a cluster ``n1 GPU 3``. Empty where there is
    only one."""
    gpus: tuple[HeldGpu, ...] = ()
    node: str = ""
    """Empty where there is only one."""

    @property
    def title(self) -> str:
        """``GPU 3``, ``GPUs 2, 3``, ``CPUs 0-3``; empty where nothing is told."""
        numbers = ", ".join(str(gpu.index) for gpu in self.gpus)
        return self.name or (f"GPU{'s' if len(self.gpus) > 1 else ''} {numbers}" if numbers else "")

    @property
    def short(self) -> str:
        """``title``, with the node if there are several and the name does not begin with it."""
        node = f"node {self.node}" if self.node and not self.name.startswith(f"{self.node} ") else ""
        return ", ".join(part for part in (self.title, node) if part)

    @property
    def whole(self) -> str:
        """``title`` with the UUID of each GPU."""
        uuids = ", ".join(gpu.uuid for gpu in self.gpus)
        return f"{self.short} ({uuids})" if uuids else self.short


def place_of(notes: Sequence[NoteRecord]) -> TrialPlace:
    """The place of the trial of these notes; every screen takes it from here."""
    found = {note.name: note.data for note in notes if note.name in (PLACE, GPUS)}
    where = found.get(PLACE, {})
    return TrialPlace(
        name=str(where.get("where") or ""),
        gpus=tuple(HeldGpu(int(gpu["index"]), str(gpu["uuid"])) for gpu in found.get(GPUS, {}).get("held", ())),
        node=str(where.get("node") or ""),
    )
