"""What an export to TRL is of, and what it is."""

from __future__ import annotations

from trainer.frameworks.common.exported import (
    ACCELERATE,
    DEEPSPEED,
    LAUNCHER,
    PROMPTS,
    RUN,
    SERVER,
    Command,
    Export,
    Wanted,
)

__all__ = [
    "ACCELERATE",
    "CONFIG",
    "DEEPSPEED",
    "LAUNCHER",
    "PROMPTS",
    "RUN",
    "SERVER",
    "Command",
    "Export",
    "Wanted",
]

CONFIG = "grpo.yaml"
