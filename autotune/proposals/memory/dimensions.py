"""A model's sizes as the formulas need them: what is not known is guessed from what is, and said to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.adapters import RANKS, adapted_projections, is_lora
from search_spaces.configuration import ModelFacts
from search_spaces.frameworks import facts_of

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
        """Width of a gated MLP: what a layer's parameters leave beside attention; one to eight times the model's own.

        Wider ones are experts, of which a token meets few.
        """
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
