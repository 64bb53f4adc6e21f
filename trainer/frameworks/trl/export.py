"""Exports a configuration as files for TRL's own GRPO script, and the command that trains. Pure.

Edits the user's own configuration in place; without one, writes a whole one. Knobs without a key in TRL are set by a
launcher that runs the same script.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from search_spaces import yaml_edit
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.native import seam_values
from trainer.child import contract
from trainer.frameworks.common import exported
from trainer.frameworks.common.exported import Command, Export, ExportRequest, Rewards
from trainer.frameworks.common.serving import base_url, server_environment, split, trainer_environment
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.common.values import variables
from trainer.frameworks.trl.keys import (
    ENGINE_SEAMS,
    FLOAT8_SEAMS,
    NATIVE,
    NESTED,
    TRAINER_SEAMS,
    acting,
    own_keys,
    seams,
    settings,
)
from trainer.frameworks.trl.server import DEVELOPMENT, server_command, trainer_settings, wants_server

CONFIG = "grpo.yaml"
PORT, GROUP_PORT = 8000, 51216
"""Ports of an exported rollout server and of the weight group: TRL's defaults."""
_EXPLICIT = frozenset(NATIVE) | {"sleep_level"}
"""Knobs that are written even if the user did not set them."""
_OWN_CHOICE = ("tf32", "pad_to_multiple", "empty_cache_steps", "ddp_bucket_mib")
"""Knobs that keep torch's default if the user did not set them."""
DEFAULT_COMPLETION = 512
"""TRL's default of ``max_completion_length``, in tokens."""
_CHILD = Path(contract.__file__).parent.parent / "frameworks"
_FOLDERS = {"float8": "hf_trainer"}
"""Part -> folder of the child's module, if the folder is not ``trl``."""
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
    rewards = exported.rewards_of(request.rewards)
    prompts = not (request.user_config and request.own_data)
    before = "" if script_given else request.user_config
    text = edited(request, rewards, prompts) if before else whole_config(request, rewards)
    parts, server = parts_of(request.configuration, request.device), wants_server(request.configuration)
    made = _command(request, rewards, bool(parts))
    remark = f"Options of TRL's script may follow; they win over {CONFIG}."
    if request.nodes > 1:  # torchrun's own variables for its options
        remark += (
            f" Start it on each of the {request.nodes} nodes, with PET_NODE_RANK (from 0), PET_MASTER_ADDR and "
            "PET_MASTER_PORT set: the address of the first and a port that is free there."
        )
    run = exported.run_script(request, made, remark, beside_server=server)
    files = {CONFIG: text, exported.RUN: run, **rewards.files}
    files.update(files_of(parts, request.configuration, request.device))
    if not by_torchrun(request):
        files[exported.ACCELERATE] = _accelerate_text(request)
    training, _, _ = settings(request.configuration, **request.sizes, passthrough=request.passthrough)
    if training.get("deepspeed"):
        files[exported.DEEPSPEED] = json.dumps(training["deepspeed"], indent=2) + "\n"
    if server:
        files[exported.SERVER] = _server_script(request)
    health = f"{base_url(PORT)}/health" if server else ""
    whys = tuple(part.why for part in parts if part.why)
    named = {name for part in parts for name in part.seams}
    other = {name: value for name, value in seam_values(request.configuration, "trl").items() if name in named}
    return Export(files, made, other, whys, prompts, exported.difference(before, text, CONFIG), health)


@dataclass(frozen=True)
class Part:
    """A module of the child that the launcher uses, copied unchanged."""

    name: str
    """Name of the child's module; the copy is ``autotune_<name>.py``."""
    seams: Mapping[str, KnobValue]
    """Knob -> value, the module's arguments."""
    why: str = ""
    """Reason in one sentence, for a part that no knob requires."""


def parts_of(configuration: Mapping[str, KnobValue], device: str) -> tuple[Part, ...]:
    """Returns the modules that the configuration needs on ``device``, in the launcher's order; mostly empty."""
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
    """Returns name -> text of the launcher and its modules; empty without parts."""
    if not parts:
        return {}
    compiles = configuration.get("torch_compile") is True or acting(configuration).get("enforce_eager") is False
    said = {"device": repr(device), "compiles": repr(compiles)}
    first = "".join(
        exported.fill(__file__, f"launch_{part.name}_first", **said) for part in parts if part.name in _FIRST
    )
    then = [
        exported.fill(__file__, f"launch_{part.name}", seams=repr(dict(part.seams)), device=repr(device))
        for part in parts
    ]
    launcher = exported.fill(__file__, "launch", first=first, then="\n".join(then))
    paths = {part.name: _CHILD / _FOLDERS.get(part.name, "trl") / f"{part.name}.py" for part in parts}
    modules = {f"autotune_{name}.py": path.read_text(encoding="utf-8") for name, path in paths.items()}
    return {exported.LAUNCHER: launcher, **modules}


def by_torchrun(request: ExportRequest) -> bool:
    """Tells whether ``torchrun`` starts the processes, as in a trial.

    Sharding needs torchrun even with one process; on a CPU ``accelerate launch`` would start one of several processes.
    On several nodes torchrun takes the differences between nodes from variables.
    """
    acts = acting(request.configuration)
    sharded = bool(acts.get("zero_stage")) or acts.get("fsdp") == "fsdp2"
    return sharded or request.nodes > 1 or (request.device == "cpu" and request.world_size > 1)


def _accelerate_text(request: ExportRequest) -> str:
    """Returns the text of the configuration file for ``accelerate launch``."""
    precision = str(request.configuration.get("precision", "fp32"))
    several = request.world_size > 1
    values = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if several else "NO",
        "mixed_precision": {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16"}.get(precision, "no"),
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": request.world_size,
        "use_cpu": request.device == "cpu",
        "main_training_function": "main",
        "enable_cpu_affinity": False,
        "debug": False,
    }
    return "".join(f"{key}: {yaml_edit.scalar(value)}\n" for key, value in values.items())


def _command(request: ExportRequest, rewards: Rewards, launcher: bool) -> Command:
    """Returns the training command, by ``LAUNCHER`` if ``launcher``, else by TRL's script itself.

    Exported files have absolute paths if the command runs in the user's folder.
    """
    words = ["{here}/" + exported.LAUNCHER] if launcher else ["-m", "trl.scripts.grpo"]
    words += ["--config", "{here}/" + CONFIG]
    own_folder = bool(request.user_config)
    environment = _environment(request)
    if own_folder and rewards.files:
        environment["PYTHONPATH"] = "{here}"
    if own_folder and not request.own_data:
        words += ["--dataset_name", "{here}/" + exported.PROMPTS]
    if own_folder and acting(request.configuration).get("zero_stage"):
        words += ["--deepspeed", "{here}/" + exported.DEEPSPEED]
    folder = rewards.folder or request.folder if own_folder else "{here}"
    return Command((request.python, *_started(request), *words), folder, environment)


def _started(request: ExportRequest) -> tuple[str, ...]:
    if by_torchrun(request):
        place = ("--nnodes", str(request.nodes)) if request.nodes > 1 else ("--standalone", "--local-addr", "127.0.0.1")
        ranks = (*place, "--nproc-per-node", str(request.world_size // request.nodes))
        return ("-m", "torch.distributed.run", *ranks, "--log-dir", "{here}/ranks")
    threads = ("--num_cpu_threads_per_process", str(request.threads))
    return ("-m", "accelerate.commands.launch", "--config_file", "{here}/" + exported.ACCELERATE, *threads)


def _environment(request: ExportRequest) -> dict[str, str]:
    found = variables(request.configuration)
    if by_torchrun(request):
        found["OMP_NUM_THREADS"] = str(request.threads)  # it would leave a process one thread
    if request.device == "cpu" and request.world_size > request.nodes == 1:
        found["GLOO_SOCKET_IFNAME"] = "lo"
    if wants_server(request.configuration):
        return {**found, **trainer_environment(split(exported.gpus_of(request), request.configuration)[0])}
    return {**found, **exported.visible(request, beside_server=False)}


def _server_script(request: ExportRequest) -> str:
    """Returns the text of the rollout server's script. Raises ValueError if the GPUs cannot be split as configured."""
    longest = (request.max_prompt_length or 0) + request.max_completion_length
    argv = server_command(
        request.configuration,
        request.model,
        request.python,
        PORT,
        longest=longest,
        revision=request.revision,
        passthrough=request.passthrough,
        vllm=request.vllm,
    )
    environment = {**server_environment(()), **DEVELOPMENT}
    del environment["HF_HUB_OFFLINE"]  # a study has fetched the model before; here it may have to be
    del environment["CUDA_VISIBLE_DEVICES"]  # the script itself says it
    return exported.server_script(request, argv, environment)


def knob_keys(request: ExportRequest) -> dict[str, Any]:
    """Returns the configuration's knobs as keys of TRL's script; DeepSpeed's file by its name.

    Raises ValueError for a configuration that TRL cannot take.
    """
    training, model, _ = settings(request.configuration, **request.sizes, passthrough=request.passthrough)
    if "use_kernels" in model:
        own = request.passthrough.get("model_init_kwargs") or {}
        model["model_init_kwargs"] = {**own, "use_kernels": model.pop("use_kernels")}
    if training.get("deepspeed"):
        training["deepspeed"] = exported.DEEPSPEED
    if wants_server(request.configuration):
        reached = trainer_settings(PORT, GROUP_PORT)
        training.update({key: reached[key] for key in ("vllm_server_base_url", "vllm_group_port")})
    return {**training, **model}


def whole_config(request: ExportRequest, rewards: Rewards) -> str:
    """Returns the text of a configuration with every knob, because another TRL version has other defaults."""
    unset = {knob: value for knob, value in defaults("trl").items() if knob in _EXPLICIT}
    tuned = knob_keys(replace(request, configuration={**unset, **request.configuration}))
    tuned.update({NATIVE[knob]: None for knob in _OWN_CHOICE if knob not in request.configuration})
    run = {
        "output_dir": "output",
        "num_train_epochs": 1,
        "logging_steps": 1,
        "report_to": "none",
        "seed": request.seed,
        "use_cpu": _use_cpu(request),
        **own_keys(request.passthrough, request.configuration, measuring=True),
    }
    inputs = {
        "model_name_or_path": request.model,
        **({"model_revision": request.revision} if request.revision else {}),
        "dataset_name": exported.PROMPTS,
        "dataset_train_split": "train",
        "reward_funcs": list(rewards.names),
        "max_completion_length": request.max_completion_length,
    }
    return exported.whole_text(request.title, inputs, tuned, run)


def _use_cpu(request: ExportRequest) -> bool:
    """Returns the value of ``use_cpu``, false with DeepSpeed, which it would turn off on a CPU."""
    return request.device == "cpu" and not acting(request.configuration).get("zero_stage")


def edited(request: ExportRequest, rewards: Rewards, prompts: bool) -> str:
    """Returns the text of the user's own file with the knobs, and the inputs that the command line gave instead."""
    document = yaml_edit.located(request.user_config)
    model: dict[str, Any] = {}
    if not exported.same_model(yaml_edit.lookup(document, ("model_name_or_path",)), request.model):
        model["model_name_or_path"] = request.model
        if request.revision or ("model_revision",) in document.values:
            model["model_revision"] = request.revision or "main"
    return edited_with(
        document,
        knob_changes(document, knob_keys(request), request, dict(NESTED.values()), ("deepspeed", "fsdp")),
        request,
        rewards,
        use_cpu=_use_cpu(request),
        model=model,
        data={"dataset_name": exported.PROMPTS, "dataset_train_split": "train"} if prompts else {},
        emptied={"dataset_config": None, "datasets": []},
        lengths={"max_completion_length": (request.max_completion_length, DEFAULT_COMPLETION)},
    )


def edited_with(
    document: yaml_edit.Document,
    changes: dict[yaml_edit.Path, Any],
    request: ExportRequest,
    rewards: Rewards,
    *,
    use_cpu: bool,
    model: Mapping[str, Any],
    data: Mapping[str, Any],
    emptied: Mapping[str, Any],
    lengths: Mapping[str, tuple[int, Any]],
) -> str:
    """Returns the text of the user's own file with the ``changes`` of the knobs, and the inputs that differ.

    With exported prompts (``data``), keys of ``emptied`` that the file has get its values. ``lengths``: key -> (tokens,
    default).
    """
    if changes.get(("torch_compile",)) is False:  # either of these alone turns it on
        compiling = [("torch_compile_mode",), ("torch_compile_backend",)]
        changes.update({path: None for path in compiling if path in document.values})
    if (yaml_edit.lookup(document, ("use_cpu",)) is True) != use_cpu and request.device == "cpu":
        changes[("use_cpu",)] = use_cpu
    changes.update({(key,): value for key, value in model.items()})
    if rewards.files or ("reward_funcs",) not in document.values:
        changes[("reward_funcs",)] = list(rewards.names)
    if ("reward_weights",) in document.values and "reward_weights" not in request.passthrough:
        changes[("reward_weights",)] = None  # of the rewards that went
    changes.update({(key,): value for key, value in data.items()})
    changes.update({(key,): value for key, value in emptied.items() if data and (key,) in document.values})
    for key, (length, unset) in lengths.items():
        own = yaml_edit.lookup(document, (key,))
        if (unset if own is None else own) != length:
            changes[(key,)] = length
    return yaml_edit.edited(request.user_config, changes)


def knob_changes(
    document: yaml_edit.Document,
    keys: Mapping[str, Any],
    request: ExportRequest,
    inner: Mapping[str, str],
    omitted: Collection[str],
) -> dict[yaml_edit.Path, Any]:
    """Returns path in the user's file -> new value, for the knobs' ``keys``.

    ``inner``: key -> the knob's key in its mapping. A key of ``omitted`` with a false value is not added to a file.
    """
    changes: dict[yaml_edit.Path, Any] = {}
    for key, value in keys.items():
        nested = ("model_init_kwargs", key)
        if key in inner and isinstance(document.values.get((key,)), yaml_edit.MAPPING):
            changes[key, inner[key]] = value[inner[key]]
        elif nested in document.values:
            changes[nested] = value
        elif value or (key,) in document.values or key not in omitted:
            changes[(key,)] = value
    steps, micro = (changes.get((key,)) for key in ("steps_per_generation", "per_device_train_batch_size"))
    if yaml_edit.lookup(document, ("generation_batch_size",)) is None or steps is None or micro is None:
        return changes
    del changes[("steps_per_generation",)]  # TRL refuses both
    return {**changes, ("generation_batch_size",): steps * micro * request.world_size}
