"""What runs a trial outside a study needs: someone to listen to it, and a stop that a signal asks for."""

from __future__ import annotations

from autotune.domain import CycleRecord
from trainer.child.contract import CurrentPhase, NoteRecord, Record, StartupRecord, WorstCaseRecord


class Asked:
    """``ports.StopToken`` that nobody has asked for."""

    level = 0


class Heard:
    """What a running trial reports."""

    enough: bool | None = None

    def __init__(self) -> None:
        self.cycles: list[CycleRecord] = []
        self.startup: dict[str, float] = {}
        self.worst_case = False
        self.lengths: tuple[int, ...] = ()
        self.notes: list[str] = []

    def record(self, record: Record) -> None:
        if isinstance(record, CycleRecord):
            self.cycles.append(record)
        elif isinstance(record, StartupRecord):
            self.startup[record.part.value] = self.startup.get(record.part.value, 0.0) + record.seconds
        elif isinstance(record, WorstCaseRecord):
            self.worst_case = True
        elif isinstance(record, NoteRecord) and record.name == "lengths":
            self.lengths = tuple(int(n) for n in record.data.get("lengths", ()))
        elif isinstance(record, NoteRecord) and "why" in record.data:
            self.notes.append(f"{record.name}: {record.data['why']}")

    def phase(self, phase: CurrentPhase) -> None:
        """Not of interest."""

    def tick(self) -> None:
        """Not of interest."""
