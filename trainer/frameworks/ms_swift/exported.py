"""Input of an export to ms-swift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.frameworks.common.exported import PROMPTS, ExportRequest

CONFIG = "grpo.yaml"
PLUGIN = "plugin.py"
TRAIN = f"{PROMPTS}/train.jsonl"


@dataclass(frozen=True)
class SwiftExportRequest(ExportRequest):
    """Input of an export to ms-swift; ``user_config`` is the text of a YAML or JSON file, or of a shell script."""

    added: Mapping[str, Any] = field(default_factory=dict)
    """Arguments a trial had to add to load this model and read these prompts (its fact ``arguments``), such as
    ``model_type``; the user's own go before them."""
