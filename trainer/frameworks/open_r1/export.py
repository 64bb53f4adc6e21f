"""A configuration as files that Open-R1's own ``grpo.py`` trains from, and the command that does. Pure."""

from __future__ import annotations

from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, RUN, SERVER, Export
from trainer.frameworks.common.scripts import comment
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.texts import difference
from trainer.frameworks.open_r1 import accelerate_config
from trainer.frameworks.open_r1.config_text import edited, explicit, written
from trainer.frameworks.open_r1.exported import RECIPE, OpenR1ExportRequest
from trainer.frameworks.open_r1.keys import wants_server
from trainer.frameworks.open_r1.launching import by_torchrun, command, script, server_script
from trainer.frameworks.open_r1.rewards import rewards_of
from trainer.frameworks.open_r1.server import PORT


def export(request: OpenR1ExportRequest) -> Export:
    """The files and the command: recipe, accelerate file, ``run.sh``, with a rollout server ``server.sh`` beside it.

    Raises:
        ValueError: Open-R1 cannot be given the configuration, or the user's own recipe cannot be changed in place.
    """
    if not request.checkout:
        raise ValueError("an export to Open-R1 needs the checkout of Open-R1 whose grpo.py it runs")
    if request.nodes > 1:
        raise ValueError(
            f"a run of Open-R1 on {request.nodes} nodes is not exported; give your own launcher its values"
        )
    rewards = rewards_of(request.rewards)
    prompts = not (request.user_config and request.own_data)
    recipe = edited(request, rewards, prompts) if request.user_config else written(request, rewards)
    whole = explicit(request)
    made, server = command(whole, rewards), wants_server(whole.configuration)
    files = {RECIPE: recipe, RUN: script(whole, made), **rewards.files}
    if not by_torchrun(whole):
        files[ACCELERATE] = _accelerate(whole)
    if sharding := accelerate_config.deepspeed_text(whole.configuration, whole.device):
        files[DEEPSPEED] = sharding
    if server:
        files[SERVER] = server_script(whole)
    parts = ("rewards that Open-R1's registry does not have",) if rewards.files else ()
    diff = difference(request.user_config, recipe, RECIPE, "your recipe")
    return Export(files, made, {}, parts, prompts, diff, f"{base_url(PORT)}/health/" if server else "")


def _accelerate(request: OpenR1ExportRequest) -> str:
    """The user's own file where there is one, else a whole one."""
    told = (request.configuration, request.world_size, request.device)
    if request.accelerate:
        return accelerate_config.edited(request.accelerate, *told)
    return accelerate_config.written(*told, comment(request.title))
