"""Parent side of ms-swift: reads, renders and exports configurations, and diagnoses failed trials."""

from trainer.frameworks.ms_swift.export import export
from trainer.frameworks.ms_swift.failures import diagnose, suggest
from trainer.frameworks.ms_swift.keys import NATIVE, SUPPORTED
from trainer.frameworks.ms_swift.render import render, settings, unsupported
