"""A configuration as a recipe of Open-R1: the user's own with other knobs, or a whole one. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from search_spaces import yaml_edit
from search_spaces.knobs import defaults
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.exported import PROMPTS, ExportRequest
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.texts import sections_text
from trainer.frameworks.open_r1.field_table import FIELDS
from trainer.frameworks.open_r1.keys import CHECKPOINTING, NATIVE, acting, wants_server
from trainer.frameworks.open_r1.render import OBJECTIVE, settings
from trainer.frameworks.open_r1.server import SERVER_SHARE, trainer_keys

RECIPE = "recipe.yaml"
_PROMPT_COLUMN = "prompt"
"""Column of exported prompts: text, which Open-R1 makes into a user message after its ``system_prompt``."""
_EXPLICIT = frozenset(NATIVE) | {"precision", "master_weights", "rollout_engine", "checkpointing_reentrant"}
"""Knobs that are written even if the user did not set them."""
_OWN_CHOICE = ("tf32", "empty_cache_steps", "ddp_bucket_mib")
"""Knobs that keep torch's default if the user did not set them."""
_COMPILING = ("torch_compile_mode", "torch_compile_backend")


def explicit(request: ExportRequest) -> ExportRequest:
    """Returns ``request`` with Open-R1's default for every knob that the user did not set."""
    unset = {knob: value for knob, value in defaults(FRAMEWORK).items() if knob in _EXPLICIT - set(_OWN_CHOICE)}
    if wants_server(request.configuration):
        unset["gpu_memory_utilization"] = SERVER_SHARE
    return replace(request, configuration={**unset, **request.configuration})


def knob_keys(request: ExportRequest) -> dict[str, Any]:
    """Returns the configuration's knobs as recipe keys.

    Raises ValueError for a configuration that Open-R1 cannot take.
    """
    found = settings(
        request.configuration, request.rows_per_update, request.world_size, passthrough=request.passthrough
    )
    return {**found, **(trainer_keys() if wants_server(request.configuration) else {})}


def written(request: ExportRequest, rewards: Rewards) -> str:
    """Writes a whole recipe with every knob and the objective except ``top_k``, because TRL's defaults change."""
    tuned = knob_keys(explicit(request))
    tuned.update({NATIVE[knob]: None for knob in _OWN_CHOICE if knob not in request.configuration})
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
        **OBJECTIVE,
        **request.passthrough,
    }
    sections: dict[str, dict[str, Any]] = {
        "model, data and reward": {
            "model_name_or_path": request.model,
            "model_revision": request.revision or "main",
            "dataset_name": PROMPTS,
            "dataset_prompt_column": _PROMPT_COLUMN,
            "dataset_train_split": "train",
            "reward_funcs": list(rewards.names),
            **_lengths(request),
        },
        "what was tuned": tuned,
    }
    said = {key for keys in sections.values() for key in keys}
    left = {key: value for key, value in run.items() if key not in said}
    sections["everything else (Open-R1 goes on from a checkpoint it finds in output_dir)"] = left
    return sections_text(request.title, sections)


def _lengths(request: ExportRequest) -> dict[str, int]:
    prompt = request.max_prompt_length
    return {
        **({} if prompt is None else {"max_prompt_length": prompt}),
        "max_completion_length": request.max_completion_length,
    }


def edited(request: ExportRequest, rewards: Rewards, prompts: bool) -> str:
    """Rewrites the user's own recipe: sets the knobs, and the inputs that the command line replaced.

    Raises YamlEditError if the recipe cannot be edited in place.
    """
    document = yaml_edit.located(request.user_config)
    changes = _knob_changes(document, request)
    if changes.get(("torch_compile",)) is False:  # either of these alone turns it on
        changes.update({(key,): None for key in _COMPILING if (key,) in document.values})
    if request.device == "cpu" and yaml_edit.lookup(document, ("use_cpu",)) is not True:
        changes[("use_cpu",)] = True
    if yaml_edit.lookup(document, ("model_name_or_path",)) != request.model:
        changes[("model_name_or_path",)] = request.model
        changes[("model_revision",)] = request.revision or "main"
    if rewards.files or ("reward_funcs",) not in document.values:
        changes[("reward_funcs",)] = list(rewards.names)
    if ("reward_weights",) in document.values and "reward_weights" not in request.passthrough:
        changes[("reward_weights",)] = None  # of the rewards that went
    if prompts:
        changes.update({("dataset_name",): PROMPTS, ("dataset_prompt_column",): _PROMPT_COLUMN})
        nothing = ("dataset_config", "dataset_mixture")
        changes.update({(key,): None for key in nothing if (key,) in document.values})
        if ("dataset_train_split",) in document.values:
            changes[("dataset_train_split",)] = "train"
    for key, length in _lengths(request).items():
        own = yaml_edit.lookup(document, (key,))
        if (FIELDS[key].default if own is None else own) != length:
            changes[(key,)] = length
    return yaml_edit.edited(request.user_config, changes)


def _knob_changes(document: yaml_edit.Document, request: ExportRequest) -> dict[yaml_edit.Path, Any]:
    """Returns the changes of knobs, each at its place in the user's recipe."""
    changes: dict[yaml_edit.Path, Any] = {}
    key, inner = CHECKPOINTING
    for name, value in knob_keys(request).items():
        if name == key and isinstance(document.values.get((key,)), yaml_edit.MAPPING):
            changes[key, inner] = value[inner]
        elif name != "fp16" or value or (name,) in document.values:
            changes[(name,)] = value
    rows, steps = ("generation_batch_size",), changes.get(("steps_per_generation",))
    if yaml_edit.lookup(document, rows) is not None and steps is not None:  # TRL refuses both
        del changes[("steps_per_generation",)]
        changes[rows] = steps * int(acting(request.configuration)["micro_batch_size"]) * request.world_size
    return changes
