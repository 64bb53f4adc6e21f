"""Upper bound on the tokens/hour of a GPU: the roofline of a GRPO cycle without overhead. Pure.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009) over the work of one GRPO cycle, with the counts of
Kaplan et al. (arXiv:2001.08361): 2 N FLOP for a token forward, 4 N backward, plus attention. A decode step reads the
weights and all caches, or multiplies; whichever takes longer. The last rows of a generation read the weights for
themselves. Efficiencies are 1, and there is no overhead, so no run reaches the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.domain import Fingerprint, Study, Trial
from autotune.machine.data_sheets import Hardware, sheet_of
from search_spaces.configuration import ModelFacts

BYTES = 2
"""Bytes of a weight and of a cached key or value: bfloat16."""


class ModelShape(Protocol):
    """Dimensions of a model that determine its FLOP and bytes; ``Architecture`` and a study's model facts have them."""

    @property
    def parameters(self) -> int:
        """Number of parameters; an embedding that is also the LM head is counted once."""

    @property
    def layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def head_size(self) -> int: ...


def ideal_seconds(
    shape: ModelShape, peak: Hardware, prompt: float, lengths: Sequence[int], logprob_passes: int
) -> float:
    """Estimates the seconds of one cycle of ``len(lengths)`` rows, all decoded together.

    Args:
        peak: a data sheet's figures; products are in bfloat16.
        prompt: mean tokens of a prompt.
        lengths: completion tokens of each row.
        logprob_passes: forward passes without gradients, beside the update's own.
    """
    rows, mean, longest = len(lengths), sum(lengths) / len(lengths), max(lengths)
    weights, flops = shape.parameters, peak.rate("bf16")
    cache = 2 * shape.layers * shape.kv_heads * shape.head_size * BYTES
    together = max((weights * BYTES + rows * cache * (prompt + mean / 2)) / peak.bandwidth, 2 * weights * rows / flops)
    alone = (weights * BYTES + 0.1 * rows * cache * (prompt + longest)) / peak.bandwidth
    generate = mean * together + (longest - mean) * alone + 2 * weights * rows * prompt / flops
    attention = 6 * shape.layers * shape.hidden_size * (prompt + mean)
    tokens = rows * (prompt + mean)
    forward = tokens * (2 * weights + attention / 3) / flops
    update = tokens * (6 * weights + attention) / flops
    return generate + logprob_passes * forward + update


def ideal_rate(shape: ModelShape, peak: Hardware, prompt: float, lengths: Sequence[int], logprob_passes: int) -> float:
    """Returns the completion tokens/hour of one GPU that completes a cycle in ``ideal_seconds``."""
    return 3600.0 * sum(lengths) / ideal_seconds(shape, peak, prompt, lengths, logprob_passes)


@dataclass(frozen=True)
class Roof:
    """Upper bound for a study's model and lengths on one GPU."""

    parameters: int
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    peak: Hardware
    lengths: tuple[int, ...]
    """Completion tokens of each row of an update, as the speed cycles replay them."""

    @property
    def head_size(self) -> int:
        """Approximate head size. The model's facts lack it, and only the KV cache's share of decoding depends on it."""
        return self.hidden_size // self.heads

    def share(self, trial: Trial) -> float | None:
        """Returns measured tokens/hour divided by the upper bound; ``None`` without a figure or with emulated FP8."""
        cycles, rate = trial.speed_cycles(), trial.tokens_per_hour
        if rate is None or trial.emulated:
            return None
        rows_of_all = sum(cycle.rows for cycle in cycles)
        # A generation that serves several updates decodes their rows together.
        together = self.lengths * max(1, round(rows_of_all / len(cycles) / len(self.lengths)))
        passes = int(any(cycle.phases.get("logprob", 0.0) > 0 for cycle in cycles))
        prompt = sum(cycle.prompt_tokens for cycle in cycles) / rows_of_all
        return rate / ideal_rate(self, self.peak, prompt, together, passes)


def roof_of(study: Study, fingerprint: Fingerprint | None) -> Roof | None:
    """Returns a study's upper bound; ``None`` without exactly one known GPU, or the model's shape and lengths."""
    gpus = fingerprint.hardware.get("gpus") if fingerprint is not None else None
    names = [str(gpu.get("name", "")) for gpu in gpus or () if isinstance(gpu, Mapping)]
    resources = study.spec.resources
    if resources.device != "cuda" or len(names) != 1:
        return None
    return roof_for(resources.model, names[0], study.lengths)


def roof_for(model: ModelFacts, gpu: str, lengths: Sequence[int]) -> Roof | None:
    """Returns the upper bound for one GPU by the driver's name; ``None`` without figures, model shape or lengths."""
    peak = sheet_of(gpu)
    if peak is None or not lengths:
        return None
    if not (model.parameters and model.layers and model.hidden_size):
        return None
    if not (model.attention_heads and model.key_value_heads):
        return None
    sizes = (model.parameters, model.layers, model.hidden_size, model.attention_heads, model.key_value_heads)
    return Roof(*sizes, peak, tuple(lengths))
