"""Settings of the objective with the defaults of verl 0.9.1, which exports write explicitly. Pure.

Left to verl: ``clip_ratio_low``, ``clip_ratio_high`` and ``clip_ratio_c``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.frameworks.verl.key_tables import ACTOR, ROLLOUT

OBJECTIVE: Mapping[str, Any] = {
    ACTOR + "optim.lr": 1e-6,
    ACTOR + "optim.weight_decay": 0.01,
    ACTOR + "grad_clip": 1.0,
    ACTOR + "ppo_epochs": 1,
    ACTOR + "clip_ratio": 0.2,
    ACTOR + "loss_agg_mode": "token-mean",
    ACTOR + "use_kl_loss": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.norm_adv_by_std_in_grpo": True,
    ROLLOUT + "top_p": 1.0,
    ROLLOUT + "top_k": -1,
}
"""Of verl's own files (``trainer/config``), where a run says nothing."""
