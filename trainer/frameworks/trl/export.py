"""A configuration as files that TRL's own GRPO script trains from, and the command that does. Pure.

The user's own configuration is edited in place where there is one; else the whole of it is written. What TRL has
no key for goes through a launcher that sets it and runs the same script.
"""

from __future__ import annotations

from dataclasses import replace

from search_spaces.native import seam_values
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, RUN, SERVER, Export, ExportRequest
from trainer.frameworks.common.reward_module import rewards_of
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.texts import difference
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.trl.config_text import deepspeed_text, edited, written
from trainer.frameworks.trl.launching import CONFIG, PORT, accelerate_text, by_torchrun, command, script, server_script
from trainer.frameworks.trl.seam_files import files_of, parts_of
from trainer.frameworks.trl.server import wants_server


def export(request: ExportRequest) -> Export:
    """The files and the command.

    Raises:
        ValueError: TRL cannot be given the configuration, or the user's own file cannot be changed in place.
    """
    script_given = is_script(request.user_config)
    request = replace(request, own_data=False) if script_given else request  # a whole file is written beside a script
    rewards = rewards_of(request.rewards)
    prompts = not (request.user_config and request.own_data)
    before = "" if script_given else request.user_config
    text = edited(request, rewards, prompts) if before else written(request, rewards)
    parts, server = parts_of(request.configuration, request.device), wants_server(request.configuration)
    made = command(request, rewards, bool(parts))
    files = {CONFIG: text, RUN: script(request, made), **rewards.files}
    files.update(files_of(parts, request.configuration, request.device))
    if not by_torchrun(request):
        files[ACCELERATE] = accelerate_text(request)
    if sharding := deepspeed_text(request):
        files[DEEPSPEED] = sharding
    if server:
        files[SERVER] = server_script(request)
    health = f"{base_url(PORT)}/health" if server else ""
    whys = tuple(part.why for part in parts if part.why)
    named = {name for part in parts for name in part.seams}
    seams = {name: value for name, value in seam_values(request.configuration, "trl").items() if name in named}
    return Export(files, made, seams, whys, prompts, difference(before, text, CONFIG), health)
