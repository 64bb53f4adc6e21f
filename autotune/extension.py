"""Names that another package imports to add its own training framework, the same in a checkout and in a wheel.

See "A framework" in CONTRIBUTING.md. ``tests/support/made_up_package`` is a complete example.
"""

from autotune.frameworks import ExportNames, Integration
from autotune.frameworks.environments import Environment, Needed
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import Facts
from search_spaces.knobs import add_framework, plain_keys
from search_spaces.knobs.build import native
from trainer.child.contract import TrialSpec
from trainer.frameworks.common.config_entries import Imported, read_mapping
from trainer.frameworks.common.exported import RUN, Command, Export, ExportRequest
from trainer.frameworks.common.failures import diagnose, suggest
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.values import TrialArguments

__all__ = [
    "RUN", "Command", "Environment", "Export", "ExportNames", "ExportRequest", "Facts", "Field", "Imported",
    "Integration", "KnobValue", "Needed", "TrialArguments", "TrialSpec", "add_framework", "diagnose", "native",
    "plain_keys", "read_mapping", "suggest",
]  # fmt: skip
