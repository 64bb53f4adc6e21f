"""The keys of TRL 1.16's GRPO script, as ``describe`` gave them; an integration test compares the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.frameworks import trl
from trainer.frameworks.common.fields import fields_of

RECORDED: dict[str, Any] = json.loads(Path(trl.__file__).with_name("fields.json").read_text())
FIELDS = fields_of(RECORDED["fields"])
