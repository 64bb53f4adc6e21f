"""The rewards of a study as the function verl scores a completion by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainer.child.contract import RewardSpec
from trainer.frameworks.common.reward_module import MODULE, Rewards, rewards_of
from trainer.frameworks.common.template_files import fill

REWARD = "autotune_verl_reward.py"
"""The function verl scores a completion by."""
FUNCTION = "compute_score"


def scoring_of(specs: Sequence[RewardSpec]) -> Rewards:
    """The module with ``compute_score``, and those it calls.

    Raises:
        ValueError: a reward of TRL's own, which verl's environment has not; or of a kind that is not known.
    """
    own = [spec.name for spec in specs if spec.kind == "trl"]
    if own:
        raise ValueError(f"{own[0]} is a reward of TRL's own, which verl does not have; name a file or a task instead")
    rewards = rewards_of(specs)
    imports, names = [], []
    for number, dotted in enumerate(rewards.names):
        module, _, function = dotted.rpartition(".")
        imports.append(f"from {module} import {function} as reward_{number}")
        names.append(f"reward_{number}")
    folders = [rewards.folder] if rewards.folder else []
    text = fill(__file__, "reward", folders=repr(folders), imports="\n".join(imports), names=", ".join(names))
    files = {name: _for_verl(text) if name == f"{MODULE}.py" else text for name, text in rewards.files.items()}
    return replace(rewards, files={**files, REWARD: text})


def _for_verl(text: str) -> str:
    """The module of TRL's export; only its head speaks of TRL."""
    head, _, after = text.partition("\n")
    return '"""The reward of this run; needs nothing but the training environment."""\n' + after if head else text
