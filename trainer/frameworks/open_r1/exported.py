"""Input of an export to Open-R1."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.frameworks.common.exported import ExportRequest

RECIPE = "recipe.yaml"
SCRIPT = "src/open_r1/grpo.py"
"""In a checkout of Open-R1."""
PROMPT_COLUMN = "prompt"
"""Column of exported prompts: text, which Open-R1 makes into a user message after its ``system_prompt``."""


@dataclass(frozen=True)
class OpenR1ExportRequest(ExportRequest):
    """Input of an export to Open-R1; ``user_config`` is the user's recipe."""

    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    accelerate: str = ""
    """Text of the user's own accelerate file; empty writes one."""
