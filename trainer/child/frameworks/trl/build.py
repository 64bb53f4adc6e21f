"""Builds a ``GRPOTrainer`` from a spec, as the user's own script would."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

import pyarrow
import torch
import transformers
import trl
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, get_peft_config, get_quantization_config
from trl.trainer.utils import create_model_from_path

from ...checks import MEASURING, as_mapping, check_rows, prompt_count, prompts_of, refusing, updates_per_cycle
from ...contract import TrialSpec
from ...failures import IllegalSettingError
from ...rewards import guarded, load_rewards
from ...user_environment import ENVIRONMENT_KEY
from .importing import on_cpu

MODEL_KEYS = ("dtype", "attn_implementation")
"""``ModelConfig`` fields that are arguments of ``from_pretrained``."""


def split_passthrough(passthrough: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Splits the user's own keys into (GRPOConfig arguments, ModelConfig arguments); ignores the script's own."""
    training = {f.name for f in dataclasses.fields(GRPOConfig) if f.init}
    model = {f.name for f in dataclasses.fields(ModelConfig) if f.init} - training
    script = {f.name for f in dataclasses.fields(ScriptArguments) if f.init} | {ENVIRONMENT_KEY}
    unknown = sorted(set(passthrough) - training - model - script)
    if unknown:
        raise IllegalSettingError("TRL has no setting named %s" % ", ".join(unknown))
    return (
        {k: v for k, v in passthrough.items() if k in training},
        {k: v for k, v in passthrough.items() if k in model},
    )


def configure(spec: TrialSpec, cycles: int, scratch: Path) -> Tuple[Any, int]:
    """Builds (the trial's ``GRPOConfig``, optimizer updates in one cycle) for at most ``cycles`` cycles.

    Raises IllegalSettingError if TRL refuses the settings, or they change the completions per update.
    """
    with refusing():
        one = build_config(spec, 1, scratch)
        updates = updates_per_cycle(one.gradient_accumulation_steps, one.steps_per_generation, one.num_iterations)
        config = build_config(spec, cycles * updates, scratch)
    check_rows(rows_per_update(config), spec)
    return config, updates


def rows_per_update(config: Any) -> int:
    """Returns the completions of one optimizer update, over all ranks."""
    return int(config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size)


def build_config(spec: TrialSpec, steps: int, scratch: Path) -> Any:
    """Builds the trial's ``GRPOConfig``: the user's keys, overridden by the configuration's, then by the meter's.

    The schedule is as long as the trial, so a decaying learning rate decays within it; that changes the learning, not
    the time of a step.
    """
    measuring = {
        **MEASURING,
        "output_dir": str(scratch / "trl"),
        "max_completion_length": spec.max_completion_length,
        "max_steps": steps,
        "do_eval": False,
        "eval_on_start": False,
        "load_best_model_at_end": False,
        "push_to_hub": False,
        "resume_from_checkpoint": None,
        "seed": spec.seed,
        "use_cpu": spec.device == "cpu" and not on_cpu(spec),
    }
    own, _ = split_passthrough(spec.passthrough)
    own.pop("model_init_kwargs", None)  # the model is loaded apart, with them (``load_model``)
    return GRPOConfig(**{**own, **spec.settings, **measuring})


def load_model(spec: TrialSpec, config: Any, folder: str) -> Any:
    """Loads the policy in ``folder`` by TRL's own function, as the user's run would."""
    _, model_keys = split_passthrough(spec.passthrough)
    given: Dict[str, Any] = {key: model_keys[key] for key in MODEL_KEYS if key in model_keys}
    given.update(as_mapping(spec.passthrough.get("model_init_kwargs"), "model_init_kwargs"))
    given.pop("revision", None)  # the folder is of that revision
    given.update(spec.model_settings)
    given.setdefault("trust_remote_code", config.trust_remote_code)
    with refusing():
        quantization = get_quantization_config(own_model_config(spec))
    if quantization is not None:
        given["quantization_config"] = quantization
    if config.world_size > 1:
        given["device_map"] = None  # as TRL does: "auto" fails with several processes
    with refusing():
        model = create_model_from_path(folder, **given)
    check_attention(model, given.get("attn_implementation"))
    return model


def check_attention(model: Any, attention: Any) -> None:
    """Raises ``IllegalSettingError`` if the model has another attention than requested.

    transformers only logs a fallback, and the knob would be measured without an effect. Every configuration requests
    ``sdpa`` by default; a model without it runs as in the user's own script.
    """
    found = getattr(model.config, "_attn_implementation", None)
    if attention in (None, "sdpa") or found in (None, attention):
        return
    if str(attention).startswith("flash_attention") and "flash" in str(found):
        return  # the same attention, from a package or from a hub kernel
    raise IllegalSettingError("attn_implementation %s: this model computes with %s instead" % (attention, found))


def own_model_config(spec: TrialSpec) -> Any:
    """Returns the user's ``ModelConfig`` with the configuration's dtype, in which quantised layers compute."""
    _, model_keys = split_passthrough(spec.passthrough)
    loading = {key: value for key, value in spec.model_settings.items() if key in MODEL_KEYS}
    return ModelConfig(**{**model_keys, **loading})


def load_prompts(path: str, updates: int, rows: int) -> Any:
    """Loads the prompts file as a dataset for ``updates`` updates of ``rows`` completions, repeated as needed.

    One epoch then contains the whole trial: an epoch's end inside the trial would truncate an update.
    """
    entries = [entry for entry, _ in prompts_of(path)]
    try:
        return Dataset.from_list(entries).select([i % len(entries) for i in range(prompt_count(updates, rows))])
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise IllegalSettingError("%s: a column holds values of several types: %s" % (path, error)) from error


def rewards_of(spec: TrialSpec) -> List[Callable[..., Any]]:
    """Loads the rewards in the spec's order. Raises ``RewardFailedError`` if one cannot be loaded."""
    return [guarded(reward) for reward in load_rewards(spec.rewards)]


def build_trainer(spec: TrialSpec, config: Any, model: Any, rewards: Any, dataset: Any) -> Any:
    """Builds TRL's own trainer, unchanged. Raises ``IllegalSettingError`` for settings that it refuses."""
    with refusing():
        peft = get_peft_config(own_model_config(spec))
        return GRPOTrainer(
            model=model, reward_funcs=list(rewards), args=config, train_dataset=dataset, peft_config=peft
        )


def versions() -> Dict[str, str]:
    """Returns the versions of the packages that affect the figures."""
    return {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
