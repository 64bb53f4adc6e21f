"""Examples in the API's description, by operation: shortened responses of a made-up study (`make openapi`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("examples.json")
_ANSWERS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def example(operation: str) -> dict[str, Any]:
    """Returns the ``content`` of a response with the example of an operation; empty without an example."""
    return {"application/json": {"example": _ANSWERS[operation]}} if operation in _ANSWERS else {}
