"""Counts a model's parameters from its configuration alone, by the shapes of its layers. Pure.

The shapes are those of transformers' modelling files for the families below: embeddings, grouped attention, gated MLP
(or experts with a router), norms. Other decoders are counted as Llama's, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import UsageError
from search_spaces.configuration import ModelFacts

KNOWN = (
    "llama", "mistral", "mixtral", "ministral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe",
    "qwen3_vl", "qwen3_vl_moe", "gemma", "gemma2", "gemma3", "smollm3", "phi3", "llava", "mistral3", "pixtral",
    "internvl",
)  # fmt: skip
"""Values of ``model_type`` (also with ``_text`` at the end) whose layers are counted exactly."""
QKV_BIAS = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl")
QK_NORM = ("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "gemma3")
FOUR_NORMS = ("gemma2", "gemma3")
"""Families with norms before and after attention and MLP; the others have two norms a layer."""
TIED = ("gemma", "gemma2", "gemma3")
"""Families whose embedding is the LM head by default; in the other known families it is not."""
EVERY_LAYER_MOE = ("mixtral",)

_TEXT = ("text_config", "llm_config", "language_config")
_NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
_LARGEST = 10**9


@dataclass(frozen=True)
class Architecture:
    """Sizes of a decoder."""

    family: str
    """``model_type`` of the model's text part."""
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    max_positions: int | None
    parameters: int
    """Parameters of the text part, each counted once."""
    active: int
    """Parameters used for one token; fewer than ``parameters`` in a mixture of experts."""
    experts: int = 0
    """Number of experts in a mixture-of-experts layer; 0 without such layers."""
    chosen: int = 0
    """Number of experts that a token is routed to in such a layer."""
    expert_parameters: int = 0
    """Parameters of all experts together."""
    notes: tuple[str, ...] = ()
    """Sentences on assumptions and omissions."""
    guessed: bool = False
    """True if only the number of parameters is known; the layers are those of a typical decoder of that size."""

    @property
    def facts(self) -> ModelFacts:
        """Facts for legality and the memory formulas. If the layers are guessed, the vocabulary is omitted, so that the
        formulas widen the uncertainty of all parts."""
        return ModelFacts(
            parameters=self.parameters,
            layers=self.layers,
            hidden_size=self.hidden_size,
            attention_heads=self.heads,
            key_value_heads=self.kv_heads,
            vocabulary=None if self.guessed else self.vocabulary,
            max_positions=self.max_positions,
            experts=None if self.guessed else self.experts,
            expert_parameters=self.expert_parameters or None,
            chosen_experts=self.chosen or None,
        )


def architecture(config: Mapping[str, Any], source: str = "config.json") -> Architecture:
    """Returns the architecture that a ``config.json`` states.

    Args:
        config: the whole file.

    Raises:
        UsageError: it is not of a decoder, or lacks a needed key.
    """
    text, notes = _text_part(config)
    family = str(text.get("model_type") or config.get("model_type") or "").removesuffix("_text")
    _refuse(text, config, source)
    missing = [name for name in _NEEDED if _number(text, (name,)) is None]
    if missing:
        raise UsageError(f"{source} does not state {', '.join(missing)}, so its parameters cannot be counted")
    if family not in KNOWN:
        notes.append(f"model type {family or 'unknown'} is counted as if its layers were Llama's")
    if text.get("quantization_config") or config.get("quantization_config"):
        notes.append("the files are quantized; counted is the model they stand for, unquantized")
    width, heads = _stated(text, "hidden_size"), _stated(text, "num_attention_heads")
    made = Architecture(
        family=family,
        layers=_stated(text, "num_hidden_layers"),
        hidden_size=width,
        heads=heads,
        kv_heads=_number(text, ("num_key_value_heads",)) or heads,
        head_size=_number(text, ("head_dim",)) or max(1, width // heads),
        vocabulary=_stated(text, "vocab_size"),
        max_positions=_number(text, ("max_position_embeddings",)),
        parameters=0,
        active=0,
        notes=tuple(notes),
    )
    return _counted(made, text, config, source)


def _text_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Returns the keys of the whole file, overridden by those of its language model, and notes on omitted parts."""
    inner = next((found for key in _TEXT if isinstance(found := config.get(key), Mapping)), None)
    notes = []
    if any(isinstance(config.get(key), Mapping) for key in ("vision_config", "audio_config")):
        notes.append("only its text part is counted: neither the vision or audio part nor the tokens it makes")
    return (config if inner is None else {**config, **inner}), notes


def _refuse(text: Mapping[str, Any], config: Mapping[str, Any], source: str) -> None:
    if config.get("is_encoder_decoder") or text.get("is_encoder_decoder"):
        raise UsageError(f"{source} is an encoder-decoder's, and GRPO is planned for decoders only")
    if text.get("kv_lora_rank"):
        raise UsageError(f"{source} has latent attention (kv_lora_rank), for which there is no memory formula here yet")
    for name in ("ssm_cfg", "mamba_d_state", "linear_num_key_heads"):
        if name in text:
            raise UsageError(f"{source} has layers without attention ({name}), for which there is no formula here yet")


def _counted(made: Architecture, text: Mapping[str, Any], config: Mapping[str, Any], source: str) -> Architecture:
    """Returns ``made`` with its numbers of parameters."""
    width, family = made.hidden_size, made.family
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    tied = tied if isinstance(tied, bool) else family in TIED or family not in KNOWN
    outside = made.vocabulary * width * (1 if tied else 2) + width
    norms = width * (4 if family in FOUR_NORMS else 2)
    attention = _attention(made, text) + norms
    experts = _number(text, _EXPERTS) or 0
    sparse = _sparse_layers(made, text) if experts > 1 else 0
    dense = made.layers - sparse
    inner = _number(text, ("intermediate_size",))
    if dense and inner is None:
        raise UsageError(f"{source} does not state intermediate_size, so its parameters cannot be counted")
    plain = outside + made.layers * attention + dense * 3 * width * (inner or 0)
    every, chosen = _experts(made, text, experts, source) if sparse else (0, 0)
    met = min(_number(text, _CHOSEN) or 0, experts) if sparse else 0
    return replace(
        made,
        parameters=plain + sparse * every,
        active=plain + sparse * chosen,
        experts=experts if sparse else 0,
        chosen=met,
        expert_parameters=sparse * experts * (every - chosen) // (experts - met) if met < experts else sparse * every,
    )


def _attention(made: Architecture, text: Mapping[str, Any]) -> int:
    """Counts weights and biases of one layer's attention, including its norms."""
    width, query, kv = made.hidden_size, made.heads * made.head_size, made.kv_heads * made.head_size
    weights = 2 * width * query + 2 * width * kv
    bias = query + 2 * kv if made.family in QKV_BIAS or text.get("attention_bias") is True else 0
    bias += width if text.get("attention_bias") is True and made.family not in QKV_BIAS else 0
    return weights + bias + (2 * made.head_size if made.family in QK_NORM else 0)


def _sparse_layers(made: Architecture, text: Mapping[str, Any]) -> int:
    """Counts the layers with a mixture of experts."""
    if made.family in EVERY_LAYER_MOE:
        return made.layers
    step = _number(text, ("decoder_sparse_step",)) or 1
    plain = text.get("mlp_only_layers")
    dense = set(plain) if isinstance(plain, list) else set()
    first = _number(text, ("first_k_dense_replace",)) or 0
    return sum(i not in dense and i >= first and (i + 1) % step == 0 for i in range(made.layers))


def _experts(made: Architecture, text: Mapping[str, Any], experts: int, source: str) -> tuple[int, int]:
    """Counts the parameters of one layer's experts and router: all, and those active for one token."""
    width = made.hidden_size
    inner = _number(text, ("moe_intermediate_size", "intermediate_size"))
    chosen = _number(text, _CHOSEN)
    if inner is None or chosen is None:
        raise UsageError(f"{source} has {experts} experts but does not state their size or how many a token goes to")
    one, router = 3 * width * inner, width * experts
    shared = 3 * width * (_number(text, ("shared_expert_intermediate_size",)) or 0)
    if shared:
        shared += width  # its gate
    shared += one * (_number(text, ("n_shared_experts", "num_shared_experts")) or 0)
    return experts * one + router + shared, min(chosen, experts) * one + router + shared


def _stated(text: Mapping[str, Any], name: str) -> int:
    return _number(text, (name,)) or 1


def _number(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Returns the first of ``names`` with a whole number from 1 to ``_LARGEST``; ``None`` without one."""
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST:
            return value
    return None
