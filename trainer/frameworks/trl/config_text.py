"""A configuration as the YAML file of TRL's GRPO script: the user's own with other knobs, or a whole one. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from search_spaces import yaml_edit
from search_spaces.knobs import defaults
from trainer.frameworks.common.exported import DEEPSPEED, PROMPTS, ExportRequest
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.texts import same_model, whole_text
from trainer.frameworks.trl.keys import NATIVE, NESTED
from trainer.frameworks.trl.launching import GROUP_PORT, PORT, on_cpu_with_deepspeed
from trainer.frameworks.trl.render import own_keys, settings
from trainer.frameworks.trl.server import trainer_settings, wants_server

_EXPLICIT = frozenset(NATIVE) | {"sleep_level"}
"""Knobs that are written even if the user did not set them."""
_OWN_CHOICE = ("tf32", "pad_to_multiple", "empty_cache_steps", "ddp_bucket_mib")
"""Knobs that keep torch's default if the user did not set them."""
DEFAULT_COMPLETION = 512
"""TRL's default of ``max_completion_length``, in tokens."""


def knob_keys(request: ExportRequest) -> dict[str, Any]:
    """Returns the configuration's knobs as keys of TRL's script; DeepSpeed's as the name of its file.

    Raises ValueError for a configuration that TRL cannot take.
    """
    training, model = _rendered(request)
    if "use_kernels" in model:
        own = request.passthrough.get("model_init_kwargs") or {}
        model["model_init_kwargs"] = {**own, "use_kernels": model.pop("use_kernels")}
    if training.get("deepspeed"):
        training["deepspeed"] = DEEPSPEED
    if wants_server(request.configuration):
        reached = trainer_settings(PORT, GROUP_PORT)
        training.update({key: reached[key] for key in ("vllm_server_base_url", "vllm_group_port")})
    return {**training, **model}


def deepspeed_text(request: ExportRequest) -> str:
    """Returns DeepSpeed's configuration as JSON; empty without DeepSpeed."""
    found = _rendered(request)[0].get("deepspeed")
    return json.dumps(found, indent=2) + "\n" if found else ""


def _rendered(request: ExportRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    training, model, _ = settings(request.configuration, **request.sizes, passthrough=request.passthrough)
    return training, model


def written(request: ExportRequest, rewards: Rewards) -> str:
    """Writes a whole configuration with every knob, because another TRL version has other defaults."""
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
        "dataset_name": PROMPTS,
        "dataset_train_split": "train",
        "reward_funcs": list(rewards.names),
        "max_completion_length": request.max_completion_length,
    }
    return whole_text(request.title, inputs, tuned, run)


def _use_cpu(request: ExportRequest) -> bool:
    return request.device == "cpu" and not on_cpu_with_deepspeed(request)


def edited(request: ExportRequest, rewards: Rewards, prompts: bool) -> str:
    """Rewrites the user's own file: sets the knobs, and the inputs that the command line replaced."""
    document = yaml_edit.located(request.user_config)
    model: dict[str, Any] = {}
    if not same_model(yaml_edit.lookup(document, ("model_name_or_path",)), request.model):
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
        data={"dataset_name": PROMPTS, "dataset_train_split": "train"} if prompts else {},
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
    """Rewrites the user's own file: makes the ``changes`` of the knobs, and sets the inputs that differ.

    With exported prompts (``data``) a key of ``emptied`` that the file has gets its value. ``lengths``: key -> (tokens,
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
    """Returns the changes to the knobs' ``keys``, each at its place in the user's file.

    ``inner``: key -> the knob in its mapping. A key of ``omitted`` that turns nothing on is not added to a file.
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
