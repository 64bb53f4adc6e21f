"""A configuration in TRL's own words. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.child.contract import Protocol, RewardSpec, TrialSpec

NATIVE: Mapping[str, str] = {
    "micro_batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "num_generations": "num_generations",
    "steps_per_generation": "steps_per_generation",
    "gradient_checkpointing": "gradient_checkpointing",
    "optimizer": "optim",
    "torch_compile": "torch_compile",
    "tf32": "tf32",
    "pad_to_multiple": "pad_to_multiple_of",
    "empty_cache_steps": "torch_empty_cache_steps",
    "dataloader_workers": "dataloader_num_workers",
}
"""Knob -> ``GRPOConfig`` key, where the value goes over as it is."""
SEAMS = frozenset({"logprob_rows", "logprob_token_chunk", "logprob_vocab_chunk"})
PRECISIONS = ("fp32", "bf16", "fp16")
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
SUPPORTED = frozenset(NATIVE) | SEAMS | {"precision", "master_weights", "attn_implementation", "rollout_engine"}
"""Knobs a TRL trial can set."""


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """A sentence for each knob or value a TRL trial cannot set; empty if it can be run."""
    said = [f"a TRL trial cannot set {name}" for name in sorted(configuration) if name not in SUPPORTED]
    if configuration.get("rollout_engine", "transformers") != "transformers":
        said.append(f"rollout_engine {configuration['rollout_engine']}: a TRL trial generates with transformers")
    precision = configuration.get("precision", "bf16")
    if precision not in PRECISIONS:
        said.append(f"precision {precision}: a TRL trial computes in {', '.join(PRECISIONS)}")
    master = configuration.get("master_weights", "fp32")
    if master not in DTYPES:
        said.append(f"master_weights {master}: TRL holds weights in {' or '.join(DTYPES)}")
    if master == "bf16" and precision != "bf16":
        said.append(f"precision {precision} with master_weights bf16: weights would be rounded below what is computed")
    return said


def settings(
    configuration: Mapping[str, KnobValue], rows_per_update: int, world_size: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(``GRPOConfig`` arguments, model arguments, seams) of ``configuration``.

    Accumulation follows from the micro-batch where it is not set, so that an update keeps its rows; a
    knob that is not set is left to the user's own key, else to TRL's default.

    Raises:
        ValueError: a knob or value TRL cannot be given (``unsupported``).
    """
    refused = unsupported(configuration)
    if refused:
        raise ValueError("; ".join(refused))
    training: dict[str, Any] = {key: configuration[knob] for knob, key in NATIVE.items() if knob in configuration}
    micro = configuration.get("micro_batch_size")
    if micro is not None and "gradient_accumulation_steps" not in configuration:
        training["gradient_accumulation_steps"] = max(1, rows_per_update // (int(micro) * world_size))
    if "precision" in configuration:
        training["bf16"] = configuration["precision"] == "bf16"
        training["fp16"] = configuration["precision"] == "fp16"
    model: dict[str, Any] = {}
    if "master_weights" in configuration:
        model["dtype"] = DTYPES[str(configuration["master_weights"])]
    if "attn_implementation" in configuration:
        model["attn_implementation"] = configuration["attn_implementation"]
    return training, model, {knob: configuration[knob] for knob in sorted(SEAMS) if knob in configuration}


def render(
    *,
    trial: str,
    configuration: Mapping[str, KnobValue],
    model: str,
    prompts: str,
    reward: RewardSpec,
    rows_per_update: int,
    max_prompt_length: int,
    max_completion_length: int,
    protocol: Protocol,
    passthrough: Mapping[str, Any],
    device: str = "cpu",
    world_size: int = 1,
    seed: int = 0,
    memory_limit: int | None = None,
    meter: bool = True,
) -> TrialSpec:
    """The spec of one trial.

    Raises:
        ValueError: a knob or value TRL cannot be given.
    """
    training, loading, seams = settings(configuration, rows_per_update, world_size)
    return TrialSpec(
        trial=trial,
        framework="trl",
        model=model,
        prompts=prompts,
        reward=reward,
        settings=training,
        model_settings=loading,
        seams=seams,
        rows_per_update=rows_per_update,
        max_prompt_length=max_prompt_length,
        max_completion_length=max_completion_length,
        protocol=protocol,
        device=device,
        world_size=world_size,
        seed=seed,
        memory_limit=memory_limit,
        meter=meter,
        passthrough=passthrough,
    )
