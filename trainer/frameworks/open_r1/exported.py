"""What an Open-R1 export is of."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.frameworks.common.exported import Wanted as AnyWanted

RECIPE = "recipe.yaml"
SCRIPT = "src/open_r1/grpo.py"
"""In a checkout of Open-R1."""
PROMPT_COLUMN = "prompt"
"""Of exported prompts: text, which Open-R1 makes a user's message of, behind its ``system_prompt``."""


@dataclass(frozen=True)
class Wanted(AnyWanted):
    """What is to be exported; ``user_config`` is the user's recipe."""

    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    accelerate: str = ""
    """Text of the user's own accelerate file; empty writes one."""
