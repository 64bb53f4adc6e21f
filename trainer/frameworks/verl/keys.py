"""Our knobs in verl's overrides. Pure; ``key_values`` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from search_spaces.knobs.rollout import UNLIMITED
from search_spaces.legality.megatron_rules import TORCH_ONLY
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.speculation import speculative_config
from trainer.frameworks.common.trainer_keys import refuse
from trainer.frameworks.common.trial_arguments import following
from trainer.frameworks.verl import key_tables as tables
from trainer.frameworks.verl import megatron

acting = partial(acting_in, framework="verl")
"""The knobs that act: those whose needs hold, a knob that is not set having verl's default."""
NO_BUCKET = 1024
"""``pad_to_length_bucket`` without padding: verl's default, which verl then ignores."""
_CHOICES: Mapping[str, tuple[tuple[KnobValue, ...], str]] = {
    "rollout_engine": (("vllm", "sglang"), "verl generates with vllm or sglang"),
    "sleep_level": ((0, 2), "verl's engine sleeps at level 2 or not at all"),
    "fsdp": (tuple(tables.STRATEGIES), "verl shards with fsdp1 or fsdp2"),
    "precision": (tables.PRECISIONS, f"verl computes in {', '.join(tables.PRECISIONS)}"),
    "master_weights": (tables.MASTERS, f"verl holds weights in {' or '.join(tables.MASTERS)}"),
    "reduce_precision": (("bf16", "fp32"), "verl sums gradients in bf16 or fp32"),
    "optimizer": (tuple(tables.OPTIMIZERS), f"a verl trial has {', '.join(tables.OPTIMIZERS)}"),
    "rollout_quantization": (("none", "fp8"), "a verl trial rolls out in fp8 or what the weights are in"),
}
"""Knob -> (values a trial can set, reason against other values)."""


def unwritable(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that verl has no key for."""
    acts = acting(configuration)
    said = [f"a verl trial cannot set {name}" for name in sorted(acts) if name not in tables.WRITTEN]
    if (acts.get("rollout_mode", "colocate"), bool(acts.get("async_generation", False))) not in tables.MODES.values():
        said.append("rollout_mode server: verl generates on GPUs of its own only beside training, with older weights")
    return said + [
        f"{name} {acts[name]}: {why}"
        for name, (values, why) in _CHOICES.items()
        if name in acts and acts[name] not in values
    ]


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob with an effect that a verl trial cannot set; empty if a trial can run."""
    said = unwritable(configuration)
    if not said and _on_megatron(configuration):
        said.append(
            f"{tables.MODEL_ENGINE} megatron: trials of the megatron engine are not run yet; set it to dp, with FSDP"
        )
    if not said and configuration.get("rollout_engine") == "sglang":
        said.append(f"{tables.NAME} sglang: no trial has generated with SGLang yet; set it to vllm")
    if not said and acting(configuration).get("async_generation") is True:
        mode = next(word for word, meant in tables.MODES.items() if meant == (_mode(configuration), True))
        said.append(f"{tables.MODE} {mode}: no trial has run in an asynchronous mode yet; set it to sync")
    return said


def _on_megatron(configuration: Mapping[str, KnobValue]) -> bool:
    return configuration.get(ENGINE_KNOB) == megatron.WORD


def _mode(configuration: Mapping[str, KnobValue]) -> str:
    return str(configuration.get("rollout_mode", "colocate"))


def explicit(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> dict[str, KnobValue]:
    """Returns ``configuration`` with verl's defaults written out; idempotent.

    Args:
        configuration: knobs; ``micro_batch_size`` is one of them.
        rows_per_update: completions of an update, which set the accumulation if it is not set.
        ranks: data-parallel training processes (``search_spaces.batch.data_ranks``).

    Raises:
        ValueError: no ``micro_batch_size``, for which verl has no default.
    """
    if "micro_batch_size" not in configuration:
        raise ValueError("verl needs a micro_batch_size: it has no default of its own")
    left = {"rollout_gpus", *(TORCH_ONLY if _on_megatron(configuration) else (ENGINE_KNOB, *tables.OF_MEGATRON))}
    found = {name: value for name, value in defaults("verl").items() if name in tables.WRITTEN and name not in left}
    found.update(configuration)
    steps = following(configuration, rows_per_update, ranks)
    if steps is not None:
        found["gradient_accumulation_steps"] = steps
    if found.get("steps_per_generation", ACCUMULATION) == ACCUMULATION:
        found["steps_per_generation"] = found["gradient_accumulation_steps"]
    if found["speculative_decoding"] == "none":  # said by nothing, for it may be done in a way of the user's own
        del found["speculative_decoding"]
    for name in ("logprob_rows", "logprob_tokens"):
        found.setdefault(name, found[KNOBS[name].frameworks["verl"].follows])
    return found


def to_keys(
    configuration: Mapping[str, KnobValue], rows_per_update: int, gpus: int, longest: int | None = None
) -> dict[str, Any]:
    """Returns verl's keys for every knob, set or not, except knobs that act by environment variables.

    Args:
        rows_per_update: completions of an update, if the configuration sets no accumulation.
        longest: tokens of the longest prompt and completion, the engine's default length limit.

    Raises:
        ValueError: a knob or value that verl cannot take (``unsupported``), or a batch without whole groups.
    """
    refuse(unwritable(configuration))
    ranks = max(1, gpus // model_parallel(configuration))
    values = explicit(configuration, rows_per_update, ranks)
    acts, unset = acting(values), defaults("verl")
    found: dict[str, Any] = {}
    other = _on_megatron(values)
    for knob, key in tables.NATIVE.items():
        if other and (key in megatron.NOT_READ or knob in megatron.ELSEWHERE):
            continue
        rests = knob not in acts and values.get(knob) != unset.get(knob)
        if knob in values and not (rests and key.startswith(tables.ENGINE)):
            found.update(dict.fromkeys((key, *tables.BESIDE.get(knob, ())), _native(knob, values[knob])))
    if longest is not None:
        found.setdefault(tables.NATIVE["max_model_len"], longest)
    if speculative := speculative_config(acts):
        found[tables.GUESSES] = speculative
    return {
        **tables.FIXED,
        **_batch(values, ranks),
        **found,
        **(megatron.written(values) if other else _training(values)),
        **_rollout(values),
    }


def added(key: str) -> bool:
    """Tells whether ``key`` is new for Hydra, because none of verl's own files has it."""
    return key in tables.NOT_IN_VERLS_FILES or megatron.added(key)


def _native(knob: str, value: KnobValue) -> Any:
    if knob == "custom_all_reduce":
        return not value
    return str(value).upper() if knob == "vllm_compile_mode" else value


def _batch(values: Mapping[str, KnobValue], ranks: int) -> dict[str, Any]:
    """Returns the rows in prompts, verl's unit."""
    group = int(values["num_generations"])
    each = ranks * int(values["micro_batch_size"])
    found = {}
    for key, steps in (
        (tables.PROMPTS_PER_UPDATE, "gradient_accumulation_steps"),
        (tables.PROMPTS_PER_ROLLOUT, "steps_per_generation"),
    ):
        rows = each * int(values[steps])
        if rows % group:
            raise ValueError(
                f"{rows} rows ({ranks} ranks × micro_batch_size {values['micro_batch_size']} × {steps} "
                f"{values[steps]}) are no whole groups of num_generations {group}, and verl counts in prompts"
            )
        found[key] = rows // group
    return found


def _training(values: Mapping[str, KnobValue]) -> dict[str, Any]:
    precision, reduce = str(values["precision"]), str(values["reduce_precision"])
    impl, optimizer, options = tables.OPTIMIZERS[str(values["optimizer"])]
    multiple = int(values["pad_to_multiple"])
    return {
        tables.STRATEGY: tables.STRATEGIES[str(values["fsdp"])],
        tables.MASTER: values["master_weights"],
        tables.MIXED: {"param_dtype": precision, "reduce_dtype": reduce, "buffer_dtype": "fp32"},
        tables.IMPL: impl,
        tables.OPTIMIZER: optimizer,
        tables.OPTIONS: None if options is None else dict(options),
        tables.PADDED: multiple > 1,
        tables.BUCKET: multiple if multiple > 1 else NO_BUCKET,
    }


def _rollout(values: Mapping[str, KnobValue]) -> dict[str, Any]:
    quantization = values["rollout_quantization"]
    return {
        tables.NAME: values["rollout_engine"],
        tables.MODE: next(
            word for word, meant in tables.MODES.items() if meant == (_mode(values), values["async_generation"])
        ),
        tables.STALENESS: None if values["staleness_limit"] == UNLIMITED else values["staleness_limit"],
        tables.FREE_CACHE: values["sleep_level"] == 2,
        tables.SLEEP_MODE: values["sleep_level"] == 2,
        tables.DTYPE: tables.DTYPES[str(values["rollout_dtype"])],
        tables.QUANTIZATION: None if quantization == "none" else quantization,
        **({tables.APART_NODES: 1, tables.APART_GPUS: values["rollout_gpus"]} if _mode(values) == "server" else {}),
    }
