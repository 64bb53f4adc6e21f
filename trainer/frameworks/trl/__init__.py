"""The parent's side of TRL: what a trial is told, and what its failures mean."""

from trainer.frameworks.trl.failures import diagnose, suggest
from trainer.frameworks.trl.render import SUPPORTED, render, settings, unsupported

__all__ = ["SUPPORTED", "diagnose", "render", "settings", "suggest", "unsupported"]
