"""What an export to verl holds beside what every export does."""

from __future__ import annotations

from trainer.frameworks.common.exported import PROMPTS, RUN, SERVER, Command, Export, Wanted

__all__ = ["DATA", "PROMPTS", "REWARD", "RUN", "SERVER", "Command", "Export", "Wanted"]

DATA = "autotune_verl_data.py"
"""The dataset class that verl reads the exported prompts by."""
REWARD = "autotune_verl_reward.py"
"""The function verl scores a completion by."""
