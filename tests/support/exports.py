"""Requests for an export."""

from __future__ import annotations

from typing import Any

from trainer.frameworks.common.exported import ExportRequest

USUAL: dict[str, Any] = {
    "title": "a study",
    "configuration": {},
    "python": "/env/bin/python",
    "model": "org/model",
    "rewards": (),
    "rows_per_update": 16,
    "max_prompt_length": 32,
    "max_completion_length": 64,
    "device": "cuda",
}


def export_request(**changes: Any) -> ExportRequest:
    """Returns a usual request with the changes."""
    return ExportRequest(**{**USUAL, **changes})
