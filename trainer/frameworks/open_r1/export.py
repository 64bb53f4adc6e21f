"""Exports a configuration as files for Open-R1's own ``grpo.py``, and the command that trains. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.legality.openr1_rules import FRAMEWORK, unknown_rewards
from trainer.child.contract import RewardSpec
from trainer.frameworks.common import deepspeed, exported
from trainer.frameworks.common.accelerate_file import FILE_KEY, SAID_TWICE, SHORT_ZERO
from trainer.frameworks.common.exported import Command, Export, ExportRequest, Rewards
from trainer.frameworks.common.exported import rewards_of as modules_of
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.common.values import variables
from trainer.frameworks.open_r1 import keys
from trainer.frameworks.trl.export import edited_with, knob_changes

_MIXED = {"bf16": "bf16", "fp16": "fp16"}


def needs_file(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether a knob with an effect has no short key in an accelerate file."""
    acts = keys.acting(configuration)
    return bool(acts.get("zero_stage")) and any(knob in acts for knob in deepspeed.PLACES if knob not in SHORT_ZERO)


def deepspeed_text(configuration: Mapping[str, KnobValue], device: str) -> str:
    """Returns the text of the DeepSpeed file; empty if the short keys suffice."""
    if not needs_file(configuration):
        return ""
    return json.dumps(deepspeed.deepspeed_config(keys.acting(configuration), device), indent=2) + "\n"


def accelerate_values(configuration: Mapping[str, KnobValue], processes: int, device: str) -> dict[str, Any]:
    """Returns every key of the accelerate file, in the form of Open-R1's own files."""
    acts, stage = keys.acting(configuration), int(keys.acting(configuration).get("zero_stage", 0))
    zero: dict[str, Any] = {"zero3_init_flag": stage == 3}
    if needs_file(configuration):
        zero = {FILE_KEY: exported.DEEPSPEED, **zero}
    else:
        offloads = {key: acts.get(knob, "none") for knob, key in SHORT_ZERO.items() if knob != "zero_stage"}
        zero = {"deepspeed_multinode_launcher": "standard", **offloads, **zero, "zero_stage": stage}
        zero |= {"zero3_save_16bit_model": True} if stage == 3 else {}
    kind = "MULTI_GPU" if processes > 1 and device == "cuda" else "NO"
    precision = _MIXED.get(str(acts.get("precision", "fp32")), "no")
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        **({"deepspeed_config": zero} if stage else {}),
        "distributed_type": "DEEPSPEED" if stage else kind,
        **({} if needs_file(configuration) else {"mixed_precision": precision}),
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": processes,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": device == "cpu",
    }


def edited_accelerate(text: str, configuration: Mapping[str, KnobValue], processes: int, device: str) -> str:
    """Returns the user's own accelerate file with the configuration's processes, precision and DeepSpeed.

    Raises YamlEditError if the file cannot be edited in place.
    """
    document = yaml_edit.located(text)
    ours = accelerate_values(configuration, processes, device)
    zero, own_type = ours.get("deepspeed_config"), yaml_edit.lookup(document, ("distributed_type",))
    changes: dict[yaml_edit.Path, Any] = {("num_processes",): processes}
    if (own_type == "DEEPSPEED") != bool(zero) or own_type is None:
        changes[("distributed_type",)] = ours["distributed_type"]
    if "mixed_precision" in ours or ("mixed_precision",) in document.values:
        changes[("mixed_precision",)] = ours.get("mixed_precision")
    if (yaml_edit.lookup(document, ("use_cpu",)) is True) != ours["use_cpu"]:
        changes[("use_cpu",)] = ours["use_cpu"]
    short = isinstance(document.values.get(("deepspeed_config",)), yaml_edit.MAPPING)
    if zero and short and FILE_KEY not in zero and ("deepspeed_config", FILE_KEY) not in document.values:
        changes.update({("deepspeed_config", key): zero[key] for key in zero if key != "deepspeed_multinode_launcher"})
        twice = [("deepspeed_config", key) for key in SAID_TWICE if ("deepspeed_config", key) in document.values]
        changes.update(dict.fromkeys(twice, deepspeed.AUTO))  # transformers refuses another value than the recipe's
    elif zero:
        changes[("deepspeed_config",)] = zero
    return yaml_edit.edited(text, changes)


RECIPE = "recipe.yaml"
_PROMPT_COLUMN = "prompt"
"""Column of exported prompts, each a text, which Open-R1 makes a user message after its ``system_prompt``."""
_EXPLICIT = frozenset(keys.NATIVE) | {"precision", "master_weights", "rollout_engine", "checkpointing_reentrant"}
"""Knobs that are written even if the user did not set them."""
_OWN_CHOICE = ("tf32", "empty_cache_steps", "ddp_bucket_mib")
"""Knobs that keep torch's default if the user did not set them."""
SCRIPT = "src/open_r1/grpo.py"
"""Path of the script in a checkout of Open-R1."""
KIND = "open_r1"
"""Kind of a ``RewardSpec`` whose name is in Open-R1's registry."""


def export(request: ExportRequest) -> Export:
    """Returns the files and the command: recipe, accelerate file, ``run.sh``, and ``server.sh`` for a rollout server.

    Raises ValueError for a configuration that Open-R1 cannot take, or a recipe that cannot be edited in place.
    """
    if not request.checkout:
        raise ValueError("an export to Open-R1 needs the checkout of Open-R1 whose grpo.py it runs")
    if request.nodes > 1:
        raise ValueError(
            f"a run of Open-R1 on {request.nodes} nodes is not exported; give your own launcher its values"
        )
    if is_script(request.user_config):  # a whole recipe is written beside a script
        request = replace(request, user_config="", own_data=False)
    rewards = rewards_of(request.rewards)
    prompts = not (request.user_config and request.own_data)
    recipe = edited(request, rewards, prompts) if request.user_config else whole_recipe(request, rewards)
    whole = explicit(request)
    made, server = _command(whole, rewards), keys.wants_server(whole.configuration)
    remark = f"Options of Open-R1's script may follow; they win over {RECIPE}."
    run = exported.run_script(whole, made, remark, beside_server=server)
    files = {RECIPE: recipe, exported.RUN: run, **rewards.files}
    if not _by_torchrun(whole):
        files[exported.ACCELERATE] = _accelerate(whole)
    if sharding := deepspeed_text(whole.configuration, whole.device):
        files[exported.DEEPSPEED] = sharding
    if server:
        longest, revision = whole.longest, whole.revision
        argv = keys.server_command(whole.configuration, whole.model, whole.python, longest=longest, revision=revision)
        files[exported.SERVER] = exported.server_script(whole, argv, {})
    parts = ("rewards that Open-R1's registry does not have",) if rewards.files else ()
    diff = exported.difference(request.user_config, recipe, RECIPE, "your recipe")
    return Export(files, made, {}, parts, prompts, diff, f"{base_url(keys.PORT)}/health/" if server else "")


def _accelerate(request: ExportRequest) -> str:
    """Returns the user's own accelerate file, edited; without one, a new file."""
    arguments = (request.configuration, request.world_size, request.device)
    if request.accelerate:
        return edited_accelerate(request.accelerate, *arguments)
    lines = [f"# {exported.comment(request.title)}"]
    for key, value in accelerate_values(*arguments).items():
        if isinstance(value, Mapping):
            lines += [f"{key}:", *(f"  {inner}: {yaml_edit.scalar(item)}" for inner, item in value.items())]
        else:
            lines.append(f"{key}: {yaml_edit.scalar(value)}")
    return "\n".join(lines) + "\n"


def rewards_of(specs: Sequence[RewardSpec]) -> Rewards:
    """Returns all rewards, by names that Open-R1's ``grpo.py`` can load.

    Raises ValueError for a reward that cannot be exported, or a name outside the registry.
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
    return Rewards(names, {exported.LAUNCHER: exported.fill(__file__, "launch"), **made.files}, made.folder)


def _by_torchrun(request: ExportRequest) -> bool:
    """Tells whether torchrun starts the processes: on a CPU ``accelerate launch`` would start only one."""
    return request.device == "cpu" and request.world_size > 1


def _command(request: ExportRequest, rewards: Rewards) -> Command:
    """Returns the training command."""
    own_folder = bool(request.user_config)
    words = ["{here}/" + exported.LAUNCHER] if rewards.files else []
    words += [f"{request.checkout}/{SCRIPT}", "--config", "{here}/" + RECIPE]
    words += ["--dataset_name", "{here}/" + exported.PROMPTS] if own_folder and not request.own_data else []
    folder = rewards.folder or request.folder if own_folder else "{here}"
    return Command((request.python, *_started(request), *words), folder, _environment(request, rewards))


def _started(request: ExportRequest) -> tuple[str, ...]:
    if _by_torchrun(request):
        ranks = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(request.world_size))
        return ("-m", "torch.distributed.run", *ranks)
    words = ["-m", "accelerate.commands.launch", "--config_file", "{here}/" + exported.ACCELERATE]
    if needs_file(request.configuration):  # the file's own path would be looked up from the folder
        words += [f"--{FILE_KEY}", "{here}/" + exported.DEEPSPEED]
    return (*words, "--num_cpu_threads_per_process", str(request.threads))


def _environment(request: ExportRequest, rewards: Rewards) -> dict[str, str]:
    here = "{here}:" if rewards.files else ""
    found = {"PYTHONPATH": f"{here}{request.checkout}/src", **variables(request.configuration)}
    if _by_torchrun(request):
        found.update(OMP_NUM_THREADS=str(request.threads), GLOO_SOCKET_IFNAME="lo")
    return {**found, **exported.visible(request, beside_server=keys.wants_server(request.configuration))}


def explicit(request: ExportRequest) -> ExportRequest:
    """Returns ``request`` with Open-R1's default for every knob that the user did not set."""
    unset = {knob: value for knob, value in defaults(FRAMEWORK).items() if knob in _EXPLICIT - set(_OWN_CHOICE)}
    if keys.wants_server(request.configuration):
        unset["gpu_memory_utilization"] = keys.SERVER_SHARE
    return replace(request, configuration={**unset, **request.configuration})


def knob_keys(request: ExportRequest) -> dict[str, Any]:
    """Returns the configuration's knobs as recipe keys. Raises ValueError for one that Open-R1 cannot take."""
    found = keys.settings(
        request.configuration, request.rows_per_update, request.world_size, passthrough=request.passthrough
    )
    return {**found, **(keys.TRAINER_KEYS if keys.wants_server(request.configuration) else {})}


def whole_recipe(request: ExportRequest, rewards: Rewards) -> str:
    """Returns a recipe's text with every knob and the objective except ``top_k``, because TRL's defaults change."""
    tuned = knob_keys(explicit(request))
    tuned.update({keys.NATIVE[knob]: None for knob in _OWN_CHOICE if knob not in request.configuration})
    run = {
        "output_dir": "output",
        "num_train_epochs": 1,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": "none",
        "push_to_hub": False,
        "do_eval": False,
        "eval_strategy": "no",
        "seed": request.seed,
        "use_cpu": request.device == "cpu",
        **keys.OBJECTIVE,
        **request.passthrough,
    }
    inputs = {
        "model_name_or_path": request.model,
        "model_revision": request.revision or "main",
        "dataset_name": exported.PROMPTS,
        "dataset_prompt_column": _PROMPT_COLUMN,
        "dataset_train_split": "train",
        "reward_funcs": list(rewards.names),
        **_lengths(request),
    }
    others = "everything else (Open-R1 goes on from a checkpoint it finds in output_dir)"
    return exported.whole_text(request.title, inputs, tuned, run, others)


def _lengths(request: ExportRequest) -> dict[str, int]:
    found = {"max_prompt_length": request.max_prompt_length, "max_completion_length": request.max_completion_length}
    return {key: length for key, length in found.items() if length is not None}


def edited(request: ExportRequest, rewards: Rewards, prompts: bool) -> str:
    """Returns the user's own recipe with the knobs, and the inputs that the command line gave instead.

    Raises YamlEditError if the recipe cannot be edited in place.
    """
    document = yaml_edit.located(request.user_config)
    same = yaml_edit.lookup(document, ("model_name_or_path",)) == request.model
    return edited_with(
        document,
        knob_changes(document, knob_keys(request), request, dict([keys.CHECKPOINTING]), ("fp16",)),
        request,
        rewards,
        use_cpu=request.device == "cpu",
        model={} if same else {"model_name_or_path": request.model, "model_revision": request.revision or "main"},
        data={"dataset_name": exported.PROMPTS, "dataset_prompt_column": _PROMPT_COLUMN} if prompts else {},
        emptied={"dataset_config": None, "dataset_mixture": None, "dataset_train_split": "train"},
        lengths={key: (length, keys.FIELDS[key].default) for key, length in _lengths(request).items()},
    )
