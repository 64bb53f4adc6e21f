"""A study's rewards as names in a recipe, and what Open-R1's registry does not have as a module beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from search_spaces.legality.openr1_rules import unknown_rewards
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.reward_module import rewards_of as modules_of
from trainer.frameworks.common.exported import LAUNCHER

KIND = "open_r1"
"""Of a ``RewardSpec`` whose name is one of Open-R1's registry."""
_LAUNCHER = '''"""Runs Open-R1's own GRPO script with rewards that its registry does not have."""

import copy
import importlib
import runpy
import sys

from open_r1 import rewards

registry = rewards.get_reward_funcs


def get_reward_funcs(script_args):
    """Names with a dot are looked up as modules, the others in Open-R1's registry."""
    found = []
    for name in script_args.reward_funcs:
        module, dot, function = name.rpartition(".")
        if dot:
            found.append(getattr(importlib.import_module(module), function))
        else:
            one = copy.copy(script_args)
            one.reward_funcs = [name]
            found += registry(one)
    return found


if __name__ == "__main__":
    rewards.get_reward_funcs = get_reward_funcs
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
'''


@dataclass(frozen=True)
class Rewards:
    """What ``reward_funcs`` names, and the files that takes."""

    names: tuple[str, ...]
    files: dict[str, str] = field(default_factory=dict)
    """Name in the exported folder -> text; empty if Open-R1's registry has them all."""
    folder: str = ""
    """Working directory that the user's own modules are looked up from; empty if it does not matter."""


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
    return Rewards(names, {LAUNCHER: _LAUNCHER, **made.files}, made.folder)
