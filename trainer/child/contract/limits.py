"""Limits beyond which a trial's numerics count as broken, each with its source; a trial within them may train worse."""

from __future__ import annotations

import math
from typing import Optional

LOGP_MISMATCH = 1.1
"""Largest mean over tokens of exp(|log-prob of the trainer - log-prob of the rollout|).

NeMo-RL's ``token_mult_prob_error`` (its guide "Add New Models"); its own runs keep a median below 1.1 if weights are
rounded for the rollout, and below 1.05 otherwise."""

GRADIENT_NOISE = 1.0 / math.sqrt(3.0)
"""Largest norm of the rounding error over that of the gradient.

"FP4 All the Way" (arXiv 2505.19115): once the gradient's norm falls below sqrt(3) times that of the quantisation
noise, quantised training loses its effect.
"""

GRADIENT_COSINE = 1.0 / math.sqrt(1.0 + GRADIENT_NOISE**2)
"""Least cosine between the gradient and the bf16 gradient: noise of ``GRADIENT_NOISE`` at a right angle gives 0.866."""

GRADIENT_RATIOS = (1.0 - GRADIENT_NOISE, 1.0 + GRADIENT_NOISE)
"""Range of the gradient's norm over the bf16 gradient's: noise of ``GRADIENT_NOISE`` along or against it gives 0.42 to
1.58.

A missing scale changes the norm and not the direction. FP8 emulated on a 135M model: cosine 0.967 to 0.992, ratio 0.95
to 1.05; with any one scale off by a factor of 4, one of the two is outside its limit."""


def mismatch_problem(mismatch: float) -> Optional[str]:
    """Returns a sentence if the log-prob mismatch between rollout and trainer is above the limit; else ``None``."""
    if mismatch <= LOGP_MISMATCH:
        return None
    return (
        "the rollout's log-probs are not the trainer's: mean exp(|difference|) over the tokens is %.3g, and %g is the "
        "limit" % (mismatch, LOGP_MISMATCH)
    )


def gradient_problem(cosine: float, ratio: float) -> Optional[str]:
    """Returns a sentence if a gradient differs too much from the bf16 gradient; ``None`` within the limits."""
    if not math.isfinite(cosine) or not math.isfinite(ratio):
        return "the gradient is not finite, and that of bf16 is"
    if cosine < GRADIENT_COSINE:
        return "the gradient's cosine with that of bf16 is %.3f, and %.3f is the limit" % (cosine, GRADIENT_COSINE)
    low, high = GRADIENT_RATIOS
    if not low <= ratio <= high:
        return "the gradient's norm is %.3g times that of bf16, and the limits are %.2f and %.2f" % (ratio, low, high)
    return None
