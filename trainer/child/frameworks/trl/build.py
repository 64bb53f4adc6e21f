"""Builds a ``GRPOTrainer`` from a spec, as the user's own script would."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

import pyarrow
import torch
import transformers
import trl
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, get_peft_config, get_quantization_config
from trl.trainer.utils import create_model_from_path

from ...contract import TrialSpec
from ...failures import IllegalSettingError, RewardFailedError, memory_pool
from ...rewards import load_reward
from ...scored import RAISED, checked, told
from ...user_environment import ENVIRONMENT_KEY
from .ranks import on_cpu

SUPPORTED = ((1, 16), (1, 17))
"""TRL versions whose methods the meter knows: from the first, below the second."""
MODEL_KEYS = ("dtype", "attn_implementation")
"""``ModelConfig`` fields that are arguments of ``from_pretrained``."""


def check_version(version: str) -> None:
    """Raises ``IllegalSettingError`` outside the window: figures of an unknown trainer would not be true."""
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    low, high = SUPPORTED
    if not low <= parts < high:
        raise IllegalSettingError(
            "TRL %s is installed; this release can measure TRL >= %d.%d and < %d.%d" % (version, *low, *high)
        )


def split_passthrough(passthrough: Mapping[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The user's own keys as (GRPOConfig arguments, ModelConfig arguments); its script's own do nothing here."""
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
    """(The trial's ``GRPOConfig``, optimizer updates in a whole cycle) for at most ``cycles`` cycles.

    Raises:
        IllegalSettingError: TRL refuses the settings, or they make another number of rows per update.
    """
    try:
        updates = updates_per_cycle(build_config(spec, 1, scratch))
        config = build_config(spec, cycles * updates, scratch)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise refused(error) from error
    if rows_per_update(config) != spec.rows_per_update:
        raise IllegalSettingError(
            "these settings make %d rows per update, the trial is of %d"
            % (rows_per_update(config), spec.rows_per_update)
        )
    return config, updates


def rows_per_update(config: Any) -> int:
    """Completions of one optimizer update, over all ranks."""
    return int(config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size)


def updates_per_cycle(config: Any) -> int:
    """One, unless a generation serves several updates: only whole rounds are timed."""
    per_generation = config.steps_per_generation * config.num_iterations
    accumulation = config.gradient_accumulation_steps
    return int(math.lcm(per_generation, accumulation) // accumulation)


def build_config(spec: TrialSpec, steps: int, scratch: Path) -> Any:
    """The trial's ``GRPOConfig``: the user's keys, then the configuration's, then what measuring needs.

    The schedule is as long as the trial, so a decaying learning rate decays within it; that changes
    what is learned, not how long a step takes.
    """
    measuring = {
        "output_dir": str(scratch / "trl"),
        "max_completion_length": spec.max_completion_length,
        "max_steps": steps,
        "num_train_epochs": 1,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
        "do_eval": False,
        "eval_on_start": False,
        "load_best_model_at_end": False,
        "push_to_hub": False,
        "resume_from_checkpoint": None,
        "disable_tqdm": True,
        "seed": spec.seed,
        "use_cpu": spec.device == "cpu" and not on_cpu(spec),
    }
    own, _ = split_passthrough(spec.passthrough)
    own.pop("model_init_kwargs", None)  # the model is loaded apart, with them (``load_model``)
    return GRPOConfig(**{**own, **spec.settings, **measuring})


def load_model(spec: TrialSpec, config: Any, folder: str) -> Any:
    """The policy in ``folder``, loaded by TRL's own function, so that it is what the user's run would train."""
    _, model_keys = split_passthrough(spec.passthrough)
    given: Dict[str, Any] = {key: model_keys[key] for key in MODEL_KEYS if key in model_keys}
    given.update(as_mapping(spec.passthrough.get("model_init_kwargs"), "model_init_kwargs"))
    given.pop("revision", None)  # the folder is of that revision
    given.update(spec.model_settings)
    given.setdefault("trust_remote_code", config.trust_remote_code)
    try:
        quantization = get_quantization_config(own_model_config(spec))
    except (ValueError, TypeError, ImportError) as error:
        raise refused(error) from error
    if quantization is not None:
        given["quantization_config"] = quantization
    if config.world_size > 1:
        given["device_map"] = None  # as TRL does: "auto" fails with several processes
    try:
        model = create_model_from_path(folder, **given)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise refused(error) from error
    check_attention(model, given.get("attn_implementation"))
    return model


def check_attention(model: Any, wanted: Any) -> None:
    """Raises ``IllegalSettingError`` where the model was given another attention than the one asked for.

    What falls back is only logged by transformers, and the knob would have been measured without acting. ``sdpa`` is
    what every configuration asks for; a model without it runs as it would in the user's own script.
    """
    found = getattr(model.config, "_attn_implementation", None)
    if wanted in (None, "sdpa") or found in (None, wanted):
        return
    if str(wanted).startswith("flash_attention") and "flash" in str(found):
        return  # the same attention, from a package or from a hub kernel
    raise IllegalSettingError("attn_implementation %s: this model computes with %s instead" % (wanted, found))


def own_model_config(spec: TrialSpec) -> Any:
    """The user's ``ModelConfig`` with the configuration's dtype, which quantisation computes in."""
    _, model_keys = split_passthrough(spec.passthrough)
    loading = {key: value for key, value in spec.model_settings.items() if key in MODEL_KEYS}
    return ModelConfig(**{**model_keys, **loading})


def as_mapping(value: Any, key: str) -> Mapping[str, Any]:
    """A mapping TRL also takes as JSON text. Raises ``IllegalSettingError`` if it is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise IllegalSettingError("%s: expected a mapping, got %r" % (key, value)) from None
    if value is not None and not isinstance(value, dict):
        raise IllegalSettingError("%s: expected a mapping, got %r" % (key, value))
    return value or {}


def load_prompts(path: str, rows: int) -> Any:
    """The prompts file as a dataset of ``rows`` rows, begun again as often as needed.

    One epoch then holds the whole trial: an epoch's end inside it would cut an update short.
    """
    entries: List[Dict[str, Any]] = []
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                entry = json.loads(line)
                if not isinstance(entry, dict) or "prompt" not in entry:
                    raise IllegalSettingError("%s line %d: no prompt" % (path, number))
                entries.append(entry)
    if not entries:
        raise IllegalSettingError("%s holds no prompts" % path)
    try:
        return Dataset.from_list(entries).select([i % len(entries) for i in range(rows)])
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise IllegalSettingError("%s: a column holds values of several types: %s" % (path, error)) from error


def guarded(reward: Callable[..., Any]) -> Callable[..., Any]:
    """``reward`` with its failures told apart from the framework's; ``None`` stays "not scorable"."""

    @functools.wraps(reward)
    async def scored_async(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except RAISED as error:
            raise told(error) from error
        return checked(values)

    @functools.wraps(reward)
    def scored(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except RAISED as error:
            raise told(error) from error
        return checked(values)

    return scored_async if inspect.iscoroutinefunction(reward) else scored


def rewards_of(spec: TrialSpec) -> List[Callable[..., Any]]:
    """In the specification's order. Raises ``RewardFailedError`` if one cannot be loaded."""
    try:
        return [guarded(load_reward(reward)) for reward in spec.rewards]
    except Exception as error:
        if memory_pool(error) is not None:
            raise
        raise RewardFailedError(str(error)) from error


def build_trainer(spec: TrialSpec, config: Any, model: Any, rewards: Any, dataset: Any) -> Any:
    """TRL's own trainer, unchanged. Raises ``IllegalSettingError`` for what it refuses."""
    try:
        peft = get_peft_config(own_model_config(spec))
        return GRPOTrainer(
            model=model, reward_funcs=list(rewards), args=config, train_dataset=dataset, peft_config=peft
        )
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise refused(error) from error


def refused(error: BaseException) -> BaseException:
    """A set-up error converted to ``IllegalSettingError``, unless it is about memory."""
    return error if memory_pool(error) is not None else IllegalSettingError(str(error))


def versions() -> Dict[str, str]:
    """Versions of the packages that affect the figures."""
    return {"torch": torch.__version__, "transformers": transformers.__version__, "trl": trl.__version__}
