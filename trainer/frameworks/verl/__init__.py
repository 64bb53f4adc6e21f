"""The parent's side of verl: what a trial is told, and what its failures mean."""

from trainer.frameworks.verl.export import PROMPTS, RUN, SERVER, Command, Export, Wanted, export
from trainer.frameworks.verl.failures import diagnose, suggest
from trainer.frameworks.verl.import_config import ConfigError, Imported, import_config
from trainer.frameworks.verl.keys import SUPPORTED, explicit, unsupported
from trainer.frameworks.verl.render import render, settings

__all__ = [
    "PROMPTS",
    "RUN",
    "SERVER",
    "SUPPORTED",
    "Command",
    "ConfigError",
    "Export",
    "Imported",
    "Wanted",
    "diagnose",
    "explicit",
    "export",
    "import_config",
    "render",
    "settings",
    "suggest",
    "unsupported",
]
