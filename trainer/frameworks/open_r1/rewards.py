"""A study's rewards as names in a recipe, and what Open-R1's registry does not have as a module beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from search_spaces.legality.openr1_rules import unknown_rewards
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.exported import LAUNCHER
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.reward_module import rewards_of as modules_of
from trainer.frameworks.common.template_files import fill

KIND = "open_r1"
"""Of a ``RewardSpec`` whose name is one of Open-R1's registry."""


def rewards_of(specs: Sequence[RewardSpec]) -> Rewards:
    """Every reward by the name it is loaded by.

    Raises:
        ValueError: a reward that cannot be exported, or a name that is not in the registry.
    """
    strange = unknown_rewards([spec.name for spec in specs if spec.kind == KIND])
    if strange:
        raise ValueError(f"Open-R1's registry has no reward {strange[0]}")
    own = [spec for spec in specs if spec.kind != KIND]
    if not own:
        return Rewards(tuple(spec.name for spec in specs))
    made = modules_of(own)
    bare = [name for name in made.names if "." not in name]
    if bare:
        raise ValueError(f"the reward {bare[0]} is TRL's own, and Open-R1's registry has no such name")
    others = iter(made.names)
    names = tuple(spec.name if spec.kind == KIND else next(others) for spec in specs)
    return Rewards(names, {LAUNCHER: fill(__file__, "launch"), **made.files}, made.folder)
