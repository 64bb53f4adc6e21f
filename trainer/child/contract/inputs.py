"""Finds a missing input of a trial: its model, its prompts, a reward's file."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from .shapes import TrialSpec


def inputs_of(spec: TrialSpec) -> List[Tuple[str, str]]:
    """Returns (kind, path) of every input that has an absolute path."""
    named = [("model folder", spec.model), ("prompts file", spec.prompts)]
    kinds = {"file": "reward file", "import": "folder of the reward"}
    named += [(kinds[reward.kind], reward.path) for reward in spec.rewards if reward.kind in kinds]
    return [(what, path) for what, path in named if os.path.isabs(path)]


def missing_input(spec: TrialSpec) -> Optional[str]:
    """Returns a sentence on the first missing input; ``None`` if all exist."""
    for what, path in inputs_of(spec):
        if not os.path.exists(path):
            return "the %s %s is not there" % (what, path)
    return None
