"""Parent side of Open-R1: reads, renders and exports configurations, and diagnoses failed trials."""

from trainer.frameworks.open_r1.export import export
from trainer.frameworks.open_r1.failures import diagnose, suggest
from trainer.frameworks.open_r1.keys import NATIVE, SUPPORTED, render, settings, unsupported
