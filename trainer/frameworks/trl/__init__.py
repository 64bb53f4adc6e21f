"""The parent's side of TRL: what a trial is told, and what its failures mean."""

from trainer.frameworks.trl.export import PROMPTS, RUN, SERVER, Command, Export, Wanted, export
from trainer.frameworks.trl.failures import diagnose, suggest
from trainer.frameworks.trl.keys import SUPPORTED, unsupported
from trainer.frameworks.trl.render import render, settings

__all__ = [
    "PROMPTS",
    "RUN",
    "SERVER",
    "SUPPORTED",
    "Command",
    "Export",
    "Wanted",
    "diagnose",
    "export",
    "render",
    "settings",
    "suggest",
    "unsupported",
]
