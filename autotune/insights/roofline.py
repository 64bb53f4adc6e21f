"""Upper bound on the tokens/hour of a GPU: the roofline of a GRPO cycle without overhead. Pure.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009) over the work of one GRPO cycle, with the counts
of Kaplan et al. (arXiv:2001.08361): 2 N FLOP for a token forward, 4 N backward, and attention beside them. A decode
step reads the weights and all caches, or multiplies; whichever takes longer. Rows that go on alone read the weights
for themselves. Efficiencies are 1, and there is no overhead: nothing reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.domain import Fingerprint, Study, Trial
from search_spaces.configuration import ModelFacts

BYTES = 2
"""Of a weight and of a cached key or value: bfloat16."""


class ModelShape(Protocol):
    """Dimensions of a model that determine its FLOP and bytes; read from ``Architecture`` or from a study's model
    facts."""

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


@dataclass(frozen=True)
class DevicePeak:
    """Peak rates of a GPU: bfloat16 FLOP/s without sparsity, and memory bytes/s."""

    flops: float
    bandwidth: float


PEAKS = {
    "H200": DevicePeak(989e12, 4.8e12),
    "H100 80GB HBM3": DevicePeak(989e12, 3.35e12),
    "H100 PCIe": DevicePeak(756e12, 2.0e12),
    "A100-SXM4-80GB": DevicePeak(312e12, 2.039e12),
    "A100-SXM4-40GB": DevicePeak(312e12, 1.555e12),
    "A100 80GB PCIe": DevicePeak(312e12, 1.935e12),
    "L40S": DevicePeak(362e12, 0.864e12),
    "L4": DevicePeak(121e12, 0.3e12),
    "A10G": DevicePeak(70e12, 0.6e12),
    "RTX 4090": DevicePeak(165e12, 1.008e12),
    "RTX 3090": DevicePeak(71e12, 0.936e12),
}
"""Part of the driver's name -> NVIDIA's data sheet."""


def peak_of(name: str) -> DevicePeak | None:
    """Peak rates by the longest known part of the GPU's ``name``; ``None`` if no part is known."""
    known = [part for part in PEAKS if part in name]
    return PEAKS[max(known, key=len)] if known else None


def ideal_seconds(
    shape: ModelShape, peak: DevicePeak, prompt: float, lengths: Sequence[int], logprob_passes: int
) -> float:
    """Seconds of one cycle of ``len(lengths)`` rows, all decoded together.

    Args:
        prompt: mean tokens of a prompt.
        lengths: completion tokens of each row.
        logprob_passes: forward passes without gradients beside the update's own.
    """
    rows, mean, longest = len(lengths), sum(lengths) / len(lengths), max(lengths)
    weights = shape.parameters
    cache = 2 * shape.layers * shape.kv_heads * shape.head_size * BYTES
    together = max(
        (weights * BYTES + rows * cache * (prompt + mean / 2)) / peak.bandwidth, 2 * weights * rows / peak.flops
    )
    alone = (weights * BYTES + 0.1 * rows * cache * (prompt + longest)) / peak.bandwidth
    generate = mean * together + (longest - mean) * alone + 2 * weights * rows * prompt / peak.flops
    attention = 6 * shape.layers * shape.hidden_size * (prompt + mean)
    tokens = rows * (prompt + mean)
    forward = tokens * (2 * weights + attention / 3) / peak.flops
    update = tokens * (6 * weights + attention) / peak.flops
    return generate + logprob_passes * forward + update


def ideal_rate(
    shape: ModelShape, peak: DevicePeak, prompt: float, lengths: Sequence[int], logprob_passes: int
) -> float:
    """Completion tokens/hour of one GPU that completes a cycle in ``ideal_seconds``."""
    return 3600.0 * sum(lengths) / ideal_seconds(shape, peak, prompt, lengths, logprob_passes)


@dataclass(frozen=True)
class Roof:
    """Upper bound for a study's model and lengths on one GPU."""

    parameters: int
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    peak: DevicePeak
    lengths: tuple[int, ...]
    """Completion tokens of each row of an update, as the speed cycles replay them."""

    @property
    def head_size(self) -> int:
        """Approximate head size: the model's facts do not hold it, and only the KV cache's share of decoding depends on
        it."""
        return self.hidden_size // self.heads

    def share(self, trial: Trial) -> float | None:
        """Measured tokens/hour divided by the upper bound; ``None`` without a figure or with emulated FP8."""
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
    """Upper bound for a study; ``None`` without exactly one known GPU, or without the model's shape and lengths."""
    gpus = fingerprint.hardware.get("gpus") if fingerprint is not None else None
    names = [str(gpu.get("name", "")) for gpu in gpus or () if isinstance(gpu, Mapping)]
    resources = study.spec.resources
    if resources.device != "cuda" or len(names) != 1:
        return None
    return roof_for(resources.model, names[0], study.lengths)


def roof_for(model: ModelFacts, gpu: str, lengths: Sequence[int]) -> Roof | None:
    """Upper bound for one GPU by the driver's name; ``None`` if GPU, model shape or lengths are not known."""
    peak = peak_of(gpu)
    if peak is None or not lengths:
        return None
    if not (model.parameters and model.layers and model.hidden_size):
        return None
    if not (model.attention_heads and model.key_value_heads):
        return None
    sizes = (model.parameters, model.layers, model.hidden_size, model.attention_heads, model.key_value_heads)
    return Roof(*sizes, peak, tuple(lengths))
