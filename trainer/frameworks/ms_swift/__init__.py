"""The parent's side of ms-swift: what a trial is told, and what its failures mean."""

from trainer.frameworks.ms_swift.export import PROMPTS, RUN, SERVER, Command, Export, Wanted, export
from trainer.frameworks.ms_swift.failures import diagnose, suggest
from trainer.frameworks.ms_swift.import_config import Imported, import_config
from trainer.frameworks.ms_swift.keys import SUPPORTED, unsupported
from trainer.frameworks.ms_swift.render import render, settings

__all__ = [
    "PROMPTS",
    "RUN",
    "SERVER",
    "SUPPORTED",
    "Command",
    "Export",
    "Imported",
    "Wanted",
    "diagnose",
    "export",
    "import_config",
    "render",
    "settings",
    "suggest",
    "unsupported",
]
