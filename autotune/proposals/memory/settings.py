"""Inputs of the memory formulas: sizes of the model and knob values, with guesses and the framework's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autotune.domain import Configuration
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.reading import Columns, columns_of
from search_spaces.configuration import ModelFacts
from search_spaces.frameworks import Facts, facts_of
from search_spaces.knobs.build import ENGINES
from search_spaces.own_keys import RANKS, adapted_projections, is_lora

TYPICAL_PARAMETERS = 1e9
"""Presumed parameters if nothing is known; ``Dimensions.doubt`` is then large."""
TYPICAL_VOCABULARY = 128_000.0
LORA_RANK = 16
"""Default rank in PEFT and TRL (``trl.ModelConfig.lora_r``)."""


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
        """Width of a gated MLP, from a layer's parameters outside attention; one to eight times the model's width."""
        attention = 2.0 * self.width**2 * (1.0 + self.kv_heads / self.heads)
        return min(max(self.width, (self.layer - attention) / (3.0 * self.width)), 8.0 * self.width)

    @property
    def embedding(self) -> float:
        """Parameters of the embedding, or of the LM head."""
        return self.vocabulary * self.width

    @property
    def layer(self) -> float:
        """Parameters of a layer."""
        return (self.parameters - self.embedding) / self.layers

    @property
    def largest(self) -> float:
        """Parameters of the largest tensor: the embedding, or a matrix of the MLP."""
        return max(self.vocabulary, self.inner) * self.width

    @property
    def kv_values(self) -> float:
        """Numbers that one token adds to the KV cache, in all layers."""
        return 2.0 * self.layers * self.kv_heads * self.width / self.heads


def dimensions(facts: ModelFacts) -> Dimensions:
    """Returns ``facts`` with guesses for missing and non-positive values."""
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
    return Dimensions(parameters, layers, width, heads, known.get("key_value_heads", heads), vocabulary, doubt)


def trainable(passthrough: Mapping[str, Any], framework: str, size: Dimensions) -> float:
    """Returns the parameters that have gradients and optimizer state: those of LoRA's adapters, or all."""
    if not is_lora(passthrough, framework):
        return size.parameters
    rank = _passed(passthrough, RANKS, LORA_RANK)
    return min(size.parameters, 2.0 * rank * size.width * size.layers * adapted_projections(passthrough, framework))


def _passed(passthrough: Mapping[str, Any], names: tuple[str, ...], otherwise: float) -> float:
    """Returns the first usable number among the user's own keys ``names``."""
    values = (passthrough.get(name) for name in names)
    numbers = (float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool))
    return next((number for number in numbers if abs(number) < 1e9), otherwise)


@dataclass(frozen=True)
class Settings:
    """Knob values that several memory formulas share, as columns of equal length."""

    task: Task
    size: Dimensions
    columns: Columns
    ranks: Column
    """Training processes."""
    rows: Column
    """Rows of a micro-batch on a rank."""
    accumulation: Column
    """Micro-batches of an update."""
    generation_rows: Column
    """Completions a rank generates at once."""
    length: Column
    """Tokens of the longest row."""
    vllm: Column
    """1 where a rollout engine generates."""
    colocated: Column
    """1 where that engine shares the training GPUs."""
    stage: Column
    """ZeRO stage."""
    fsdp: Column
    megatron: Column
    """1 where Megatron-Core trains, not PyTorch's modules."""
    parallel: Column
    """Ranks that share a sequence."""
    wide: Column
    """1 if the model's weights are in fp32. DeepSpeed casts them to its compute precision and keeps fp32 copies."""
    low: Column
    """1 where products are computed in less than fp32."""

    @property
    def gpus(self) -> bool:
        """Tells whether training has GPUs."""
        return self.task.resources.gpus > 0

    @property
    def framework(self) -> Facts:
        """Facts of the framework."""
        return facts_of(self.task.resources.framework)

    @cached_property
    def lora(self) -> bool:
        """Tells whether adapters are trained."""
        return is_lora(self.task.passthrough, self.task.resources.framework)

    @cached_property
    def trained(self) -> float:
        """Parameters that have gradients and optimizer state: those of adapters, or all."""
        return trainable(self.task.passthrough, self.task.resources.framework, self.size)

    @cached_property
    def models(self) -> float:
        """Number of models in memory: 2 with a KL reference; with LoRA its adapters are disabled instead."""
        return 2.0 if _passed(self.task.passthrough, ("beta",), self.framework.unset_beta) and not self.lora else 1.0

    @property
    def weight_bytes(self) -> Column:
        """Bytes of a trained weight in the precision that it is stored in."""
        return 2.0 + 2.0 * self.wide

    @property
    def stored_bytes(self) -> Column:
        """Bytes of a stored weight: 4 or 8 bits and scales if it is frozen and quantized (QLoRA)."""
        quantized = {"load_in_4bit": 0.56, "load_in_8bit": 1.06}
        found = [bytes_ for key, bytes_ in quantized.items() if self.task.passthrough.get(key)]
        return self.columns.full(found[0]) if found else self.weight_bytes

    def sharded(self, stage: int) -> Column:
        """Returns the number of ranks that share the states of ZeRO stage ``stage``; FSDP shards everything."""
        return np.where((self.stage >= stage) | (self.fsdp > 0), self.ranks, 1.0)


def settings(task: Task, configurations: Sequence[Configuration]) -> Settings:
    """Returns the columns of ``configurations``."""
    machine = task.resources
    c = columns_of(tuple(configurations), machine.framework, machine.device)
    vllm = c.has("rollout_engine", *ENGINES)
    server = vllm * c.has("rollout_mode", "server") * float(machine.gpus > 0)
    ranks = np.maximum(1.0, machine.training_processes - server * c.number("rollout_gpus"))
    asked = c.number("training_gpus") * float(machine.gpus > 0)
    ranks = np.where(asked > 0, np.minimum(ranks, asked), ranks)
    rows = np.maximum(1.0, c.number("micro_batch_size", 1.0))
    parallel = np.maximum(1.0, c.number("sequence_parallel_size", 1.0))
    megatron = c.has("training_engine", "megatron")
    together = parallel * c.number("training_tensor_parallel_size", 1.0) * c.number("pipeline_parallel_size", 1.0)
    whole = np.maximum(1.0, np.rint(task.rows_per_update / (np.maximum(1.0, ranks // together) * rows)))
    # The framework's own default of 1 stands for what rows per update make of it.
    given = c.given("gradient_accumulation_steps") > 0
    accumulation = np.where(given, c.number("gradient_accumulation_steps"), whole)
    steps = np.where(c.given("steps_per_generation") > 0, c.number("steps_per_generation"), accumulation)
    padding = np.maximum(1.0, c.number("pad_to_multiple", 1.0))
    low, stage = 1.0 - c.has("precision", "fp32"), c.number("zero_stage", 0.0)
    whole_row = float(max(1, task.max_prompt_length + task.max_completion_length))
    return Settings(
        task=task,
        size=dimensions(machine.model),
        columns=c,
        ranks=ranks,
        rows=rows,
        accumulation=accumulation,
        generation_rows=rows * np.maximum(1.0, steps),
        length=np.ceil(whole_row / padding) * padding,
        vllm=vllm,
        colocated=vllm - server,
        stage=stage,
        fsdp=c.has("fsdp", "fsdp1", "fsdp2") * (1.0 - megatron),
        megatron=megatron,
        parallel=parallel,
        wide=c.has("master_weights", "fp32") * (1.0 - low * (stage > 0)) * (1.0 - megatron),
        low=low,
    )
