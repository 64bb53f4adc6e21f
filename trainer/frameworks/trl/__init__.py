"""Parent side of TRL: reads, renders and exports configurations, and diagnoses failed trials."""

from trainer.frameworks.common.failures import diagnose, suggest
from trainer.frameworks.trl.export import export
from trainer.frameworks.trl.keys import NATIVE, SUPPORTED, render, settings, unsupported
