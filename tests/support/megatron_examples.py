"""Published scripts that train with Megatron, as ``tests/fixtures/megatron.yaml`` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from search_spaces.configuration import KnobValue, ModelFacts, Resources
from tests.support import combinations


@dataclass(frozen=True)
class Example:
    of: str
    gpus: int
    """That train."""
    model: Mapping[str, int]
    text: str
    knobs: Mapping[str, KnobValue]
    """Some of those it sets."""
    apart: int = 0
    """GPUs of its server."""
    rules: tuple[str, ...] = ()
    """Those that forbid it as it stands."""
    refused: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    """Changes, each with the rule that refuses it."""

    @property
    def machine(self) -> Resources:
        gpus = self.gpus + self.apart
        return combinations.machine(self.of, min(8, gpus), ModelFacts(**self.model), max(1, gpus // 8))


_FOUND = yaml.safe_load((Path(__file__).parents[1] / "fixtures" / "megatron.yaml").read_text(encoding="utf-8"))
EXAMPLES = {name: Example(**found) for name, found in _FOUND.items()}
