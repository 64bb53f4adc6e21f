"""Detects compilations in a cycle: one for each new shape, so they are a small part of a long run."""

from __future__ import annotations

import sys

from ...contract import TrialSpec


def compiles(spec: TrialSpec) -> bool:
    """Tells whether the configuration turns compilation on."""
    own = any(keys.get("torch_compile") for keys in (spec.settings, spec.passthrough))
    return own or spec.seams.get("enforce_eager") is False


def graphs() -> int:
    """Returns the number of graphs compiled in this process so far."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return 0 if counters is None else int(counters["stats"]["unique_graphs"])
