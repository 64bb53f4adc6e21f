"""Writes a configuration as the YAML file that ``swift rlhf`` or ``megatron rlhf`` takes. Pure.

The file is new, or the user's own with other arguments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import yaml

from search_spaces import yaml_edit
from search_spaces.knobs import defaults
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from trainer.frameworks.common.exported import VISIBLE, ExportRequest, same_model, whole_text
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.given import ENVIRONMENT, Argument, read_given
from trainer.frameworks.ms_swift.keys import ENGINE_KEY, FSDP, OF_MEGATRON, SEAMS, SERVER, ZERO, variables
from trainer.frameworks.ms_swift.keys import ENVIRONMENT as VARIABLES
from trainer.frameworks.ms_swift.plugin import PLUGIN, TRAIN, Plugin
from trainer.frameworks.ms_swift.render import PORT, own_keys, settings, trainer_settings, wants_server

CONFIG = "grpo.yaml"
_UNWRITTEN = ZERO | FSDP | SERVER | VARIABLES | SEAMS
"""Knobs that are left out of the file if the user did not set them."""
_LEFT = frozenset(
    {
        *("tf32", "torch_compile_mode", "empty_cache_steps", "ddp_bucket_mib", "weight_sync_batches"),
        "gradient_accumulation_steps",
    }
)
"""Knobs that follow from others, or keep torch's default or no argument, if the user did not set them."""


def is_script(text: str) -> bool:
    """Tells whether ``text`` is a shell script rather than a file of arguments."""
    return re.search(r"(?:^|[{,])\s*[\"']?rlhf_type[\"']?\s*:", text, re.MULTILINE) is None


def knob_keys(request: ExportRequest) -> dict[str, Any]:
    """Returns the configuration's knobs as arguments. Raises ValueError for one that ms-swift cannot take."""
    found, _, _ = settings(request.configuration, **request.sizes, passthrough=request.passthrough)
    if wants_server(request.configuration):
        found.update(trainer_settings(PORT))
    return found


def explicit(request: ExportRequest) -> dict[str, Any]:
    """Returns ``knob_keys``, with all other knobs at ms-swift's present defaults, so that the run stays the same."""
    of_megatron = megatron.chosen(request.configuration)
    skipped = _UNWRITTEN | _LEFT | (megatron.TORCH if of_megatron else {ENGINE_KNOB, *OF_MEGATRON})
    unset = {knob: value for knob, value in defaults("ms_swift").items() if knob not in skipped}
    unset.update(megatron.UNSET if of_megatron else {})
    if wants_server(request.configuration):
        unset.pop("rollout_data_parallel_size", None)
    return knob_keys(replace(request, configuration={**unset, **request.configuration}))


def whole_run(request: ExportRequest, plugin: Plugin) -> str:
    """Returns the text of a YAML file with every argument of the run."""
    of_megatron = megatron.chosen(request.configuration)
    tuned = _allowed(explicit(request), request)
    own = own_keys(request.passthrough, request.configuration, measuring=True)
    theirs = {name: str(value) for name, value in (own.pop("env", None) or {}).items()}
    environment = {**theirs, **launch_environment(request)}
    run = {
        "output_dir": "output",
        "add_version": False,
        "num_train_epochs": 1,
        "logging_steps": 1,
        **({} if of_megatron else {"save_strategy": "no", "report_to": "none", "use_cpu": request.device == "cpu"}),
        "seed": request.seed,
        "check_model": False,
        **own,
    }
    inputs = {
        "rlhf_type": "grpo",
        "model": request.model,
        **({"model_revision": request.revision} if request.revision else {}),
        **{key: value for key, value in request.added.items() if key not in own},
        **({"dataset": [TRAIN]} if plugin.prompts else {}),
        **({"external_plugins": [*plugin.others, PLUGIN]} if plugin.needed else {}),
        "reward_funcs": list(plugin.names),
        **({} if request.max_prompt_length is None else {"max_length": request.max_prompt_length}),
        "max_completion_length": request.max_completion_length,
    }
    text = whole_text(request.title, inputs, tuned, {key: value for key, value in run.items() if value is not None})
    variables_text = f"\n# variables of the processes\n{ENVIRONMENT}: {yaml_edit.scalar(environment)}\n"
    return text + variables_text if environment else text


def _allowed(arguments: dict[str, Any], request: ExportRequest, present: Collection[str] = ()) -> dict[str, Any]:
    """Returns ``arguments``; for ``megatron rlhf`` without arguments of its server alone, unless in ``present``."""
    gone = megatron.SERVERS.difference(present) if megatron.chosen(request.configuration) else ()
    return {key: value for key, value in arguments.items() if key not in gone}


def by_torchrun(request: ExportRequest) -> bool:
    """Tells whether torchrun starts the processes: for several processes, sharding, and Megatron."""
    sharded = {"deepspeed", "fsdp"} & set(knob_keys(request))
    return request.world_size > 1 or bool(sharded) or megatron.chosen(request.configuration)


def launch_environment(
    request: ExportRequest, present: Mapping[str, Argument] = MappingProxyType({})
) -> dict[str, str]:
    """Returns the variables of the configuration, the number of training processes, and their GPUs.

    Args:
        present: variables of the user's own run, which may be for another machine.
    """
    found = variables(request.configuration)
    if request.nodes > 1:  # the run's own say it, machine by machine
        return found
    if by_torchrun(request):
        found["OMP_NUM_THREADS"] = str(request.threads)  # torchrun would leave a process one thread
    if by_torchrun(request) or "NPROC_PER_NODE" in present:
        found["NPROC_PER_NODE"] = str(request.world_size)
    if "NNODES" in present:
        found["NNODES"] = "1"
    if request.device == "cpu" and request.world_size > 1:
        found["GLOO_SOCKET_IFNAME"] = "lo"
    gpus = _gpus(request, _word(present, VISIBLE))
    return {**found, VISIBLE: gpus} if gpus else found


def _gpus(request: ExportRequest, gpus: str) -> str:
    """Returns the GPUs to name, if a user's run names another number of GPUs; else empty.

    ms-swift starts a process on every visible GPU.
    """
    there = [name for name in gpus.split(",") if name.strip()]
    count = request.world_size
    if not there or request.device != "cuda" or wants_server(request.configuration) or len(there) == count:
        return ""
    return ",".join(there[:count] if len(there) > count else map(str, range(count)))


def changes(request: ExportRequest, plugin: Plugin, present: Mapping[str, Argument]) -> dict[str, Any]:
    """Returns argument -> new value, or ``None`` to remove it, for a user's run with the arguments ``present``."""
    found: dict[str, Any] = _allowed(knob_keys(request), request, present)
    nulls = [megatron.ARGUMENTS[knob] for knob in megatron.NULL] if megatron.chosen(request.configuration) else []
    for key in ("deepspeed", "fsdp", "optimizer", "vllm_mode", ENGINE_KEY, "torch_compile_backend", *nulls):
        if key in present and key not in found and not _stays(key, request):
            found[key] = None
    if "generation_batch_size" in present:
        found["generation_batch_size"] = None  # steps_per_generation says it
    if not same_model(_word(present, "model"), request.model):
        found["model"] = request.model
        if request.revision:
            found["model_revision"] = request.revision
    if plugin.wrapped or "reward_funcs" not in present:
        found["reward_funcs"] = list(plugin.names)
    if "reward_weights" in present and "reward_weights" not in request.passthrough:
        found["reward_weights"] = None  # of the rewards that went
    if plugin.prompts:
        found["dataset"] = [TRAIN]
        found.update({key: None for key in ("columns", "split_dataset_ratio") if key in present})
    if plugin.needed:
        found["external_plugins"] = [*plugin.others, PLUGIN]
    if (_word(present, "max_completion_length") or "512") != str(request.max_completion_length):
        found["max_completion_length"] = request.max_completion_length
        found.update({key: None for key in ("max_new_tokens", "response_length") if key in present})
    found.update({key: value for key, value in request.added.items() if key not in present})
    return found


def _word(present: Mapping[str, Argument], key: str) -> str:
    return present[key].words[0] if key in present and present[key].words else ""


def _stays(key: str, request: ExportRequest) -> bool:
    """Tells whether the user's own value of ``key`` stays, although no knob sets the key."""
    if key == "optimizer":
        return request.configuration.get("optimizer") is None
    if key == "torch_compile_backend":
        return request.configuration.get("torch_compile") is not False
    knob = {"deepspeed": "zero_stage", "fsdp": "fsdp"}.get(key)
    return knob is not None and knob not in request.configuration


def edited(request: ExportRequest, plugin: Plugin) -> str:
    """Returns the text of the user's own YAML or JSON file with the configuration's arguments."""
    present = read_given(request.user_config, CONFIG)
    made = changes(request, plugin, present.arguments)
    removed = [key for key, value in made.items() if value is None]
    text = _without(request.user_config, removed) if removed else request.user_config
    wished: dict[yaml_edit.Path, Any] = {(key,): value for key, value in made.items() if value is not None}
    environment = {
        name: value
        for name, value in launch_environment(request, present.environment).items()
        if name not in present.environment or present.environment[name].words != (value,)
    }
    if environment and present.environment:
        wished.update({(ENVIRONMENT, name): value for name, value in environment.items()})
    elif environment:
        wished[(ENVIRONMENT,)] = environment
    return yaml_edit.edited(text, wished)


def _without(text: str, keys: list[str]) -> str:
    """Returns ``text`` without ``keys`` of its top-level mapping: cuts lines of a block mapping, else rewrites it."""
    document = yaml_edit.located(text)
    if document.root.flow_style:
        left = {key: value for key, value in yaml.safe_load(text).items() if key not in keys}
        return yaml_edit.scalar(left) + "\n"
    lines = text.splitlines(keepends=True)
    starts = [key.start_mark.line for key, _ in document.root.value]
    for number, (key, _) in reversed(list(enumerate(document.root.value))):
        if key.value in keys:
            end = starts[number + 1] if number + 1 < len(starts) else len(lines)
            del lines[starts[number] : end]
    return "".join(lines)
