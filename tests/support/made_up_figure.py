"""Prints where the figure ``made_up_seconds`` arrived; for ``tests/unit/test_adding.py``, in a copy that has it."""

from __future__ import annotations

import json
import sys
from typing import Any

from api.schemas.trials import Cycle
from autotune.documents import codec
from autotune.documents.study import cycle_json
from autotune.domain import CycleKind, CycleRecord
from trainer.child.contract import decode, encode

NAME = "made_up_seconds"


def main() -> None:
    """One JSON object on stdout."""
    cycle = _cycle(**{NAME: 2.5})
    stored = codec.dump(cycle)
    older = json.dumps({name: value for name, value in json.loads(stored).items() if name != NAME})
    found = {
        "wire": getattr(decode(CycleRecord, encode(cycle)), NAME),
        "stored": getattr(codec.load(CycleRecord, stored), NAME),
        "older": getattr(codec.load(CycleRecord, older), NAME),
        "shown": cycle_json(cycle)[NAME],
        "described": _described(cycle_json(cycle)),
    }
    sys.stdout.write(json.dumps(found))


def _described(shown: dict[str, Any]) -> str | None:
    """The sentence of the API's description, which has the figure among its fields."""
    Cycle.model_validate(shown)
    return Cycle.model_fields[NAME].description


def _cycle(**figures: Any) -> CycleRecord:
    return CycleRecord(
        index=1,
        cycle_kind=CycleKind.RECORDED,
        seconds=5.0,
        phases={},
        completion_tokens=448,
        prompt_tokens=96,
        computed_tokens=1120,
        rows=8,
        updates=1,
        **figures,
    )


if __name__ == "__main__":
    main()
