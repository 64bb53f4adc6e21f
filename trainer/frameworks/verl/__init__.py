"""The parent's side of verl: what a trial is told, and what its failures mean."""

from trainer.frameworks.verl.export import export
from trainer.frameworks.verl.failures import diagnose, suggest
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_tables import SUPPORTED
from trainer.frameworks.verl.keys import explicit, unsupported
from trainer.frameworks.verl.render import render, settings
