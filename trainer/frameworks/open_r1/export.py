"""A configuration as files that Open-R1's own ``grpo.py`` trains from, and the command that does. Pure."""

from __future__ import annotations

from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, RUN, SERVER, Export
from trainer.frameworks.common.scripts import comment
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.texts import difference
from trainer.frameworks.open_r1 import accelerate_config
from trainer.frameworks.open_r1.config_text import edited, explicit, written
from trainer.frameworks.open_r1.exported import RECIPE, Wanted
from trainer.frameworks.open_r1.keys import wants_server
from trainer.frameworks.open_r1.launching import by_torchrun, command, script, server_script
from trainer.frameworks.open_r1.rewards import rewards_of
from trainer.frameworks.open_r1.server import PORT


def export(wanted: Wanted) -> Export:
    """The files and the command: recipe, accelerate file, ``run.sh``, with a rollout server ``server.sh`` beside it.

    Raises:
        ValueError: Open-R1 cannot be given the configuration, or the user's own recipe cannot be changed in place.
    """
    if not wanted.checkout:
        raise ValueError("an export to Open-R1 needs the checkout of Open-R1 whose grpo.py it runs")
    if wanted.nodes > 1:
        raise ValueError(f"a run of Open-R1 on {wanted.nodes} nodes is not exported; give your own launcher its values")
    rewards = rewards_of(wanted.rewards)
    prompts = not (wanted.user_config and wanted.own_data)
    recipe = edited(wanted, rewards, prompts) if wanted.user_config else written(wanted, rewards)
    whole = explicit(wanted)
    made, server = command(whole, rewards), wants_server(whole.configuration)
    files = {RECIPE: recipe, RUN: script(whole, made), **rewards.files}
    if not by_torchrun(whole):
        files[ACCELERATE] = _accelerate(whole)
    if sharding := accelerate_config.deepspeed_text(whole.configuration, whole.device):
        files[DEEPSPEED] = sharding
    if server:
        files[SERVER] = server_script(whole)
    parts = ("rewards that Open-R1's registry does not have",) if rewards.files else ()
    diff = difference(wanted.user_config, recipe, RECIPE, "your recipe")
    return Export(files, made, {}, parts, prompts, diff, f"{base_url(PORT)}/health/" if server else "")


def _accelerate(wanted: Wanted) -> str:
    """The user's own file where there is one, else a whole one."""
    told = (wanted.configuration, wanted.world_size, wanted.device)
    if wanted.accelerate:
        return accelerate_config.edited(wanted.accelerate, *told)
    return accelerate_config.written(*told, comment(wanted.title))
