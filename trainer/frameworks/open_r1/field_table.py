"""The keys of Open-R1's ``grpo.py``: those of TRL 0.18.0, transformers 4.52.3 and its own ``configs.py``.

Open-R1 pins these versions, so its keys are known without asking an environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from trainer.frameworks.common.fields import Field, fields_of

_RECORDED = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))
FIELDS: Mapping[str, Field] = fields_of(_RECORDED["fields"])
"""Name -> field; only defaults that a study reads are included."""
