"""The rewards of a study as the function verl scores a completion by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainer.child.contract import RewardSpec
from trainer.frameworks.common.reward_module import MODULE, rewards_of
from trainer.frameworks.verl.exported import REWARD
from trainer.frameworks.verl.templates import fill

FUNCTION = "compute_score"


@dataclass(frozen=True)
class Scoring:
    """The files, and what they need."""

    files: dict[str, str] = field(default_factory=dict)
    """Name in the exported folder -> text."""
    folder: str = ""
    """Working directory that the user's own modules are looked up from; empty if there are none."""


def scoring_of(specs: Sequence[RewardSpec]) -> Scoring:
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
    text = fill("reward", folders=repr(folders), imports="\n".join(imports), names=", ".join(names))
    files = {name: _for_verl(text) if name == f"{MODULE}.py" else text for name, text in rewards.files.items()}
    return Scoring({**files, REWARD: text}, rewards.folder)


def _for_verl(text: str) -> str:
    """The module of TRL's export; only its head speaks of TRL."""
    head, _, after = text.partition("\n")
    return '"""The reward of this run; needs nothing but the training environment."""\n' + after if head else text
