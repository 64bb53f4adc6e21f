"""Optimizer state that is there before the worst case is tried."""

from __future__ import annotations

from typing import Any

import torch


def prime_optimizer(trainer: Any) -> bool:
    """Make the optimizer allocate its state, weights unchanged.

    It would otherwise appear at the end of the first step, so that the worst-case micro-batch of the
    warm-up met less memory in use than every later one (out-of-memory is typically met at step 2 or 3).
    One step at learning rate zero with zero gradients, then the step counters are put back.

    Returns:
        False if this optimizer cannot be primed (its own sharding, or no plain learning rate).
    """
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    groups = getattr(optimizer, "param_groups", None)
    if not groups or trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return False
    if any(not isinstance(group.get("lr"), (int, float)) for group in groups):
        return False
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    for group in groups:
        group["lr"] = rates.pop(0)
    for state in optimizer.state.values():
        step = state.get("step")
        if isinstance(step, torch.Tensor):
            step.zero_()
        elif step is not None:
            state["step"] = 0
    return True
