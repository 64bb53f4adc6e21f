"""What an Open-R1 export is of. ``Command`` and ``Export`` are those of TRL's."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.frameworks.trl.exported import Wanted as TrlWanted

RECIPE = "recipe.yaml"
ACCELERATE = "accelerate.yaml"
RUN = "run.sh"
SERVER = "server.sh"
LAUNCHER = "launch.py"
PROMPTS = "prompts"
SCRIPT = "src/open_r1/grpo.py"
"""In a checkout of Open-R1."""
PROMPT_COLUMN = "prompt"
"""Of exported prompts: text, which Open-R1 makes a user's message of, behind its ``system_prompt``."""


@dataclass(frozen=True)
class Wanted(TrlWanted):
    """What is to be exported; ``user_config`` is the user's recipe."""

    checkout: str = ""
    """Folder of the user's Open-R1, whose ``grpo.py`` trains."""
    accelerate: str = ""
    """Text of the user's own accelerate file; empty writes one."""
