"""What an export to ms-swift is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.frameworks.common.exported import PROMPTS
from trainer.frameworks.common.exported import Wanted as AnyWanted

CONFIG = "grpo.yaml"
PLUGIN = "plugin.py"
TRAIN = f"{PROMPTS}/train.jsonl"


@dataclass(frozen=True)
class Wanted(AnyWanted):
    """What is to be exported; ``user_config`` is a YAML or JSON file's text, or a shell script's."""

    added: Mapping[str, Any] = field(default_factory=dict)
    """Arguments a trial had to add to load this model and read these prompts (its fact ``arguments``), such as
    ``model_type``; the user's own go before them."""
