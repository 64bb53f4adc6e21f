"""Limits beyond which a trial's numerics count as broken, each with its source. A trial within them may still train
worse."""

from __future__ import annotations

import math
from typing import Optional

LOGP_MISMATCH = 1.1
"""Mean over tokens of exp(|log-prob of the trainer - log-prob of the rollout|).

NeMo-RL's ``token_mult_prob_error`` (its guide "Add New Models"); its own runs are held to a median below 1.1, where
weights are rounded for the rollout, and below 1.05 elsewhere.
"""

GRADIENT_NOISE = 1.0 / math.sqrt(3.0)
"""Largest norm of the rounding error over that of the gradient.

"FP4 All the Way" (arXiv 2505.19115): once the gradient's norm falls below sqrt(3) times that of the quantisation
noise, quantised training loses its effect.
"""

GRADIENT_COSINE = 1.0 / math.sqrt(1.0 + GRADIENT_NOISE**2)
"""Between the gradient and that of bf16, where so much noise stands at a right angle to it: 0.866."""

GRADIENT_RATIOS = (1.0 - GRADIENT_NOISE, 1.0 + GRADIENT_NOISE)
"""Norm of the gradient over that of bf16's, where so much noise points along it or against it: 0.42 to 1.58.

A scale that was left out changes no direction, only this. Measured with FP8 emulated on a 135M model: cosine 0.967 to
0.992, ratio 0.95 to 1.05; with one scale off by a factor of 4, one of the two lay outside whichever scale it was.
"""


def mismatch_problem(mismatch: float) -> Optional[str]:
    """A sentence if the log-prob mismatch between rollout and trainer is above the limit; else ``None``."""
    if mismatch <= LOGP_MISMATCH:
        return None
    return (
        "the rollout's log-probs are not the trainer's: mean exp(|difference|) over the tokens is %.3g, and %g is the "
        "limit" % (mismatch, LOGP_MISMATCH)
    )


def gradient_problem(cosine: float, ratio: float) -> Optional[str]:
    """A sentence if a gradient differs too much from the bf16 gradient; ``None`` within the limits.

    Args:
        cosine: of the angle between the two.
        ratio: of their norms, that of bf16 below.
    """
    if not math.isfinite(cosine) or not math.isfinite(ratio):
        return "the gradient is not finite, and that of bf16 is"
    if cosine < GRADIENT_COSINE:
        return "the gradient's cosine with that of bf16 is %.3f, and %.3f is the limit" % (cosine, GRADIENT_COSINE)
    low, high = GRADIENT_RATIOS
    if not low <= ratio <= high:
        return "the gradient's norm is %.3g times that of bf16, and the limits are %.2f and %.2f" % (ratio, low, high)
    return None
