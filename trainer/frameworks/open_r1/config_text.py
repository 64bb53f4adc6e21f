"""A configuration as a recipe of Open-R1: the user's own with other knobs, or a whole one. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from search_spaces import yaml_edit
from search_spaces.knobs import defaults
from search_spaces.legality.openr1_rules import FRAMEWORK
from trainer.frameworks.common.exported import PROMPTS, ExportRequest
from trainer.frameworks.common.reward_module import Rewards
from trainer.frameworks.common.texts import whole_text
from trainer.frameworks.open_r1.keys import CHECKPOINTING, FIELDS, NATIVE, wants_server
from trainer.frameworks.open_r1.render import OBJECTIVE, settings
from trainer.frameworks.open_r1.server import SERVER_SHARE, trainer_keys
from trainer.frameworks.trl.config_text import edited_with, knob_changes

RECIPE = "recipe.yaml"
_PROMPT_COLUMN = "prompt"
"""Column of exported prompts: text, which Open-R1 makes into a user message after its ``system_prompt``."""
_EXPLICIT = frozenset(NATIVE) | {"precision", "master_weights", "rollout_engine", "checkpointing_reentrant"}
"""Knobs that are written even if the user did not set them."""
_OWN_CHOICE = ("tf32", "empty_cache_steps", "ddp_bucket_mib")
"""Knobs that keep torch's default if the user did not set them."""


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
    inputs = {
        "model_name_or_path": request.model,
        "model_revision": request.revision or "main",
        "dataset_name": PROMPTS,
        "dataset_prompt_column": _PROMPT_COLUMN,
        "dataset_train_split": "train",
        "reward_funcs": list(rewards.names),
        **_lengths(request),
    }
    others = "everything else (Open-R1 goes on from a checkpoint it finds in output_dir)"
    return whole_text(request.title, inputs, tuned, run, others)


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
    same = yaml_edit.lookup(document, ("model_name_or_path",)) == request.model
    return edited_with(
        document,
        knob_changes(document, knob_keys(request), request, dict([CHECKPOINTING]), ("fp16",)),
        request,
        rewards,
        use_cpu=request.device == "cpu",
        model={} if same else {"model_name_or_path": request.model, "model_revision": request.revision or "main"},
        data={"dataset_name": PROMPTS, "dataset_prompt_column": _PROMPT_COLUMN} if prompts else {},
        emptied={"dataset_config": None, "dataset_mixture": None, "dataset_train_split": "train"},
        lengths={key: (length, FIELDS[key].default) for key, length in _lengths(request).items()},
    )
