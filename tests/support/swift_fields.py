"""The arguments of ms-swift 4.6's ``swift rlhf``, as ``describe`` gave them; a slow test compares the real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer.frameworks import ms_swift
from trainer.frameworks.common.fields import fields_of

RECORDED: dict[str, Any] = json.loads(Path(ms_swift.__file__).with_name("fields.json").read_text())
FIELDS = fields_of(RECORDED["fields"])
