"""Exports a configuration as files for TRL's own GRPO script, and the command that trains. Pure.

Edits the user's own configuration in place; without one, writes a whole one. Knobs without a key in TRL are set by a
launcher that runs the same script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from search_spaces.configuration import KnobValue
from search_spaces.native import seam_values
from trainer.child import contract
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, LAUNCHER, RUN, SERVER, Export, ExportRequest
from trainer.frameworks.common.reward_module import rewards_of
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.texts import difference, fill
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.trl.config_text import deepspeed_text, edited, written
from trainer.frameworks.trl.keys import ENGINE_SEAMS, FLOAT8_SEAMS, TRAINER_SEAMS, acting, seams
from trainer.frameworks.trl.launching import CONFIG, PORT, accelerate_text, by_torchrun, command, script, server_script
from trainer.frameworks.trl.server import wants_server

_CHILD = Path(contract.__file__).parent.parent / "frameworks"
_FOLDERS = {"float8": "hf_trainer"}
"""Part -> folder of the child's module, if it is not ``trl``."""
_ENGINE_ON_CPU = "vLLM on a CPU takes the trained weights by a reload, which TRL does not do"
_DEEPSPEED_ON_CPU = "accelerate knows no DeepSpeed on a CPU, so what it asks the machine is answered for it"

_FIRST = ("cpu_deepspeed", "engine")
"""Parts that set values which torch, accelerate and vLLM read at import."""


def export(request: ExportRequest) -> Export:
    """Returns the files and the command.

    Raises ValueError for a configuration that TRL cannot take, or a user's file that cannot be edited in place.
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
    other = {name: value for name, value in seam_values(request.configuration, "trl").items() if name in named}
    return Export(files, made, other, whys, prompts, difference(before, text, CONFIG), health)


@dataclass(frozen=True)
class Part:
    """A module of a trial that the launcher uses, copied unchanged."""

    name: str
    """Name of the child's module; the copy is ``autotune_<name>.py``."""
    seams: Mapping[str, KnobValue]
    """Arguments of the module."""
    why: str = ""
    """Reason in one sentence, for a part that no knob asks for."""

    @property
    def file(self) -> str:
        return f"autotune_{self.name}.py"

    @property
    def text(self) -> str:
        folder = _CHILD / _FOLDERS.get(self.name, "trl")
        return (folder / f"{self.name}.py").read_text(encoding="utf-8")


def parts_of(configuration: Mapping[str, KnobValue], device: str) -> tuple[Part, ...]:
    """Returns the modules that the configuration needs on ``device``, in the launcher's order; mostly none."""
    acts, given, other = acting(configuration), seams(configuration), seam_values(configuration, "trl")
    found = []
    if device == "cpu" and acts.get("zero_stage"):
        found.append(Part("cpu_deepspeed", {}, _DEEPSPEED_ON_CPU))
    colocated = acts.get("rollout_engine") == "vllm" and acts.get("rollout_mode") != "server"
    if colocated and (device == "cpu" or ENGINE_SEAMS & set(other)):
        engine = {name: value for name, value in given.items() if name in ENGINE_SEAMS}
        found.append(Part("engine", engine, _ENGINE_ON_CPU if device == "cpu" else ""))
    if "precision" in other:
        found.append(Part("float8", {name: value for name, value in given.items() if name in FLOAT8_SEAMS}))
    trainer = {name: value for name, value in given.items() if name in TRAINER_SEAMS and name in other}
    if trainer:
        found.append(Part("seams", trainer))
    return tuple(found)


def files_of(parts: tuple[Part, ...], configuration: Mapping[str, KnobValue], device: str) -> dict[str, str]:
    """Returns the launcher and its modules; empty without parts."""
    if not parts:
        return {}
    compiles = configuration.get("torch_compile") is True or acting(configuration).get("enforce_eager") is False
    said = {"device": repr(device), "compiles": repr(compiles)}
    first = "".join(fill(__file__, f"launch_{part.name}_first", **said) for part in parts if part.name in _FIRST)
    then = [fill(__file__, f"launch_{part.name}", seams=repr(dict(part.seams)), device=repr(device)) for part in parts]
    launcher = fill(__file__, "launch", first=first, then="\n".join(then))
    return {LAUNCHER: launcher, **{part.file: part.text for part in parts}}
