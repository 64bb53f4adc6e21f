"""The most tokens/hour a GPU could give, if it did nothing but what it cannot leave out. Pure.

The roofline of Williams, Waterman and Patterson (CACM 52(4), 2009) over the work of one GRPO cycle, with the counts
of Kaplan et al. (arXiv:2001.08361): 2 N FLOP for a token forward, 4 N backward, and attention beside them. A decode
step reads the weights and all caches, or multiplies; whichever takes longer. Rows that go on alone read the weights
for themselves. Efficiencies are 1, and there is no overhead: nothing reaches it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

BYTES = 2
"""Of a weight and of a cached key or value: bfloat16."""


class Shape(Protocol):
    """What is asked of a model: ``Architecture`` tells it, and so do the facts a study keeps."""

    @property
    def parameters(self) -> int:
        """Each once, an embedding that is the LM head too not twice."""

    @property
    def layers(self) -> int: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def head_size(self) -> int: ...


@dataclass(frozen=True)
class Peak:
    """What a GPU can do at most: bfloat16 FLOP/s without sparsity, bytes/s of its memory."""

    flops: float
    bandwidth: float


PEAKS = {
    "H200": Peak(989e12, 4.8e12),
    "H100 80GB HBM3": Peak(989e12, 3.35e12),
    "H100 PCIe": Peak(756e12, 2.0e12),
    "A100-SXM4-80GB": Peak(312e12, 2.039e12),
    "A100-SXM4-40GB": Peak(312e12, 1.555e12),
    "A100 80GB PCIe": Peak(312e12, 1.935e12),
    "L40S": Peak(362e12, 0.864e12),
    "L4": Peak(121e12, 0.3e12),
    "A10G": Peak(70e12, 0.6e12),
    "RTX 4090": Peak(165e12, 1.008e12),
    "RTX 3090": Peak(71e12, 0.936e12),
}
"""Part of the driver's name -> NVIDIA's data sheet."""


def peak_of(name: str) -> Peak | None:
    """By the longest part of ``name`` that is known; ``None`` if none is."""
    known = [part for part in PEAKS if part in name]
    return PEAKS[max(known, key=len)] if known else None


def ideal_seconds(shape: Shape, peak: Peak, prompt: float, lengths: Sequence[int], logprob_passes: int) -> float:
    """Seconds of one cycle of ``len(lengths)`` rows, all decoded together.

    Args:
        shape: of the model.
        peak: of the GPU.
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


def ideal_rate(shape: Shape, peak: Peak, prompt: float, lengths: Sequence[int], logprob_passes: int) -> float:
    """Completion tokens/hour of one GPU at ``ideal_seconds``."""
    return 3600.0 * sum(lengths) / ideal_seconds(shape, peak, prompt, lengths, logprob_passes)


def told(peak: Peak) -> str:
    """What a share of the roofline is a share of, as a sentence."""
    return (
        "a roofline (`benchmarks/gpu/roofline.py`: Williams et al. 2009, with the FLOP counts of Kaplan et "
        f"al. 2020) at {peak.flops / 1e12:.0f} TFLOP/s in bf16 and {peak.bandwidth / 1e12:.2f} TB/s, all rows decoded "
        "together and nothing ever waiting."
    )
