"""Failures as they are really written (``tests/fixtures/failures.yaml``); the tests read them from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from trainer.child.contract import FailureReason, Pool


@dataclass(frozen=True)
class Row:
    """A failure's text, and what must become of it."""

    text: str
    reason: FailureReason
    pool: Pool | None = None
    phase: str | None = None
    try_: str = ""

    def __str__(self) -> str:
        return self.text.splitlines()[-1][:60]


def _rows(right: dict[str, str], texts: list[str]) -> list[Row]:
    pool = Pool(right["pool"]) if "pool" in right else None
    given = {**right, "reason": FailureReason(right["reason"]), "pool": pool}
    return [Row(text, **given) for text in texts]  # type: ignore[arg-type]


_FOUND = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "failures.yaml").read_text(encoding="utf-8"))
CAUSES = tuple(row for group in _FOUND["causes"] for row in _rows(**group))
KILLS, TIMEOUTS, ECHOES = (tuple(_FOUND[name]) for name in ("kills", "timeouts", "echoes"))
RAYLET: str = _FOUND["raylet"]
OF_FRAMEWORKS: dict[str, dict[str, list[str]]] = _FOUND["of_frameworks"]
