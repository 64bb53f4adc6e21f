"""Settings of the objective with the defaults of TRL 0.18, which exports write explicitly. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OBJECTIVE: Mapping[str, Any] = {
    "loss_type": "bnpo",
    "beta": 0.04,
    "epsilon": 0.2,
    "scale_rewards": True,
    "mask_truncated_completions": False,
    "num_iterations": 1,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "learning_rate": 1e-6,
    "lr_scheduler_type": "linear",
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "max_grad_norm": 1.0,
}
"""``GRPOConfig`` of TRL 0.18.0 and ``TrainingArguments`` of transformers 4.52.3, where a recipe says nothing. ``top_k``
is not among them: there it is ``None``, all tokens, which no number says to both rollout engines."""
