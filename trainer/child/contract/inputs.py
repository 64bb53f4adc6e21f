"""Finds which input of a trial is not there: its model, its prompts, a reward's file."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from .shapes import TrialSpec


def inputs_of(spec: TrialSpec) -> List[Tuple[str, str]]:
    """(What it is, its path) of every input that is named by an absolute path."""
    named = [("model folder", spec.model), ("prompts file", spec.prompts)]
    kinds = {"file": "reward file", "import": "folder of the reward"}
    named += [(kinds[reward.kind], reward.path) for reward in spec.rewards if reward.kind in kinds]
    return [(what, path) for what, path in named if os.path.isabs(path)]


def missing_input(spec: TrialSpec) -> Optional[str]:
    """A sentence that names the first input that is not there; ``None`` if all are."""
    for what, path in inputs_of(spec):
        if not os.path.exists(path):
            return "the %s %s is not there" % (what, path)
    return None
