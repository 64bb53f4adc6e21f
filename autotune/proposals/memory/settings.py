"""Inputs of the memory formulas: sizes of the model and knob values, with guesses and the framework's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.domain import Configuration
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.reading import Columns, columns_of
from search_spaces.adapters import RANKS, adapted_projections, is_lora
from search_spaces.configuration import ModelFacts
from search_spaces.frameworks import facts_of
from search_spaces.knobs.build import ENGINES

TYPICAL_PARAMETERS = 1e9
"""Where nothing is known; ``Dimensions.doubt`` is then large."""
TYPICAL_VOCABULARY = 128_000.0
LORA_RANK = 16
"""PEFT's and TRL's default (``trl.ModelConfig.lora_r``)."""


@dataclass(frozen=True)
class Dimensions:
    """Sizes of a causal language model."""

    parameters: float
    layers: float
    width: float
    heads: float
    kv_heads: float
    vocabulary: float
    doubt: float
    """Relative spread of all formulas that use these: 0 where every size that matters is known."""

    @property
    def inner(self) -> float:
        """Width of a gated MLP, by the parameters a layer has beside attention; one to eight times the model's own."""
        layer = (self.parameters - self.vocabulary * self.width) / self.layers
        attention = 2.0 * self.width**2 * (1.0 + self.kv_heads / self.heads)
        return min(max(self.width, (layer - attention) / (3.0 * self.width)), 8.0 * self.width)

    @property
    def kv_values(self) -> float:
        """Numbers a token adds to the cache: keys and values of all layers."""
        return 2.0 * self.layers * self.kv_heads * self.width / self.heads


def dimensions(facts: ModelFacts) -> Dimensions:
    """``facts`` with guesses in the place of ``None``, and of anything that is not positive."""
    known = {name: float(v) for name, v in vars(facts).items() if v is not None and v > 0}
    shape = {"layers", "hidden_size"} <= set(known)
    vocabulary = known.get("vocabulary", TYPICAL_VOCABULARY)
    parameters = known.get("parameters")
    if parameters is None and shape:
        # 12 width^2 a layer: attention 4, MLP 8; and the embedding, tied.
        parameters = 12.0 * known["layers"] * known["hidden_size"] ** 2 + vocabulary * known["hidden_size"]
        doubt = 0.25
    elif parameters is None:
        parameters, doubt = TYPICAL_PARAMETERS, 1.5
    else:
        doubt = 0.0 if shape and "vocabulary" in known else 0.5
    # Llama-like models from 0.1 to 70 billion parameters lie near width 2048 (parameters / 1.2e9)^(1/3).
    width = known.get("hidden_size", 2048.0 * (parameters / 1.2e9) ** (1.0 / 3.0))
    layers = known.get("layers", max(2.0, parameters / (12.0 * width**2)))
    heads = known.get("attention_heads", max(1.0, width / 64.0))
    kv_heads = known.get("key_value_heads", heads)
    return Dimensions(parameters, layers, width, heads, kv_heads, vocabulary, doubt)


def trainable(passthrough: Mapping[str, Any], framework: str, size: Dimensions) -> float:
    """Parameters that have gradients and optimizer state: LoRA's adapters, or all."""
    if not is_lora(passthrough, framework):
        return size.parameters
    rank = _number(passthrough, RANKS, LORA_RANK)
    count = adapted_projections(passthrough, framework)
    return min(size.parameters, 2.0 * rank * size.width * size.layers * count)


def stored_bytes(passthrough: Mapping[str, Any]) -> float | None:
    """Bytes of a frozen quantized weight (QLoRA), scales included; ``None`` if weights are not quantized."""
    if passthrough.get("load_in_4bit"):
        return 0.56
    return 1.06 if passthrough.get("load_in_8bit") else None


def has_reference(passthrough: Mapping[str, Any], framework: str) -> bool:
    """Whether a second model is held for the KL term; under LoRA the adapters are switched off instead."""
    beta = _number(passthrough, ("beta",), facts_of(framework).unset_beta)
    return beta != 0.0 and not is_lora(passthrough, framework)


def _number(passthrough: Mapping[str, Any], names: tuple[str, ...], otherwise: float) -> float:
    for name in names:
        value = passthrough.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9:
            return float(value)
    return otherwise


@dataclass(frozen=True)
class Settings:
    """Knob values shared by several memory formulas, as columns of equal length."""

    columns: Columns
    ranks: Column
    """Training processes."""
    rows: Column
    """Of a micro-batch, on a rank."""
    accumulation: Column
    """Micro-batches of an update."""
    generation_rows: Column
    """Completions a rank generates at once."""
    length: Column
    """Tokens of the longest row: prompt and completion at their maximum, padded."""
    vllm: Column
    """1 where vLLM generates."""
    colocated: Column
    """1 where it does so in the training process."""
    stage: Column
    """ZeRO stage."""
    fsdp: Column
    megatron: Column
    """1 where Megatron-Core trains, not PyTorch's modules."""
    parallel: Column
    """Ranks that share a sequence."""
    wide: Column
    """1 where the model's weights are in fp32. DeepSpeed casts them to what it computes in, with fp32 ones beside."""
    low: Column
    """1 where products are computed in less than fp32."""
    checkpointed: Column

    @property
    def held_bytes(self) -> Column:
        """Bytes of one weight in the precision it is held in: 2, or 4 for fp32."""
        return 2.0 + 2.0 * self.wide


def settings(task: Task, configurations: Sequence[Configuration]) -> Settings:
    """The columns of ``configurations``."""
    machine = task.resources
    columns = columns_of(tuple(configurations), machine.framework, machine.device)
    vllm = columns.has("rollout_engine", *ENGINES)
    server = vllm * columns.has("rollout_mode", "server") * float(machine.gpus > 0)
    ranks = np.maximum(1.0, machine.training_processes - server * columns.number("rollout_gpus"))
    asked = columns.number("training_gpus") * float(machine.gpus > 0)
    ranks = np.where(asked > 0, np.minimum(ranks, asked), ranks)
    rows = np.maximum(1.0, columns.number("micro_batch_size", 1.0))
    parallel = np.maximum(1.0, columns.number("sequence_parallel_size", 1.0))
    megatron = columns.has("training_engine", "megatron")
    together = parallel * columns.number("training_tensor_parallel_size", 1.0)
    data = np.maximum(1.0, ranks // (together * columns.number("pipeline_parallel_size", 1.0)))
    whole = np.maximum(1.0, np.rint(task.rows_per_update / (data * rows)))
    # The framework's own default of 1 stands for what rows per update make of it.
    accumulation = np.where(
        columns.given("gradient_accumulation_steps") > 0, columns.number("gradient_accumulation_steps"), whole
    )
    steps = np.where(columns.given("steps_per_generation") > 0, columns.number("steps_per_generation"), accumulation)
    padding = np.maximum(1.0, columns.number("pad_to_multiple", 1.0))
    low = 1.0 - columns.has("precision", "fp32")
    stage = columns.number("zero_stage", 0.0)
    whole_row = float(max(1, task.max_prompt_length + task.max_completion_length))
    return Settings(
        columns=columns,
        ranks=ranks,
        rows=rows,
        accumulation=accumulation,
        generation_rows=rows * np.maximum(1.0, steps),
        length=np.ceil(whole_row / padding) * padding,
        vllm=vllm,
        colocated=vllm - server,
        stage=stage,
        fsdp=columns.has("fsdp", "fsdp1", "fsdp2") * (1.0 - megatron),
        megatron=megatron,
        parallel=parallel,
        wide=columns.has("master_weights", "fp32") * (1.0 - low * (stage > 0)) * (1.0 - megatron),
        low=low,
        checkpointed=columns.number("gradient_checkpointing"),
    )
