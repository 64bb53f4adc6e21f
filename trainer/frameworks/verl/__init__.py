"""Parent side of verl: reads, renders and exports configurations, and diagnoses failed trials."""

from trainer.frameworks.verl.export import export
from trainer.frameworks.verl.failures import diagnose, suggest
from trainer.frameworks.verl.key_tables import NATIVE, SUPPORTED
from trainer.frameworks.verl.keys import explicit, unsupported
from trainer.frameworks.verl.render import render, settings
