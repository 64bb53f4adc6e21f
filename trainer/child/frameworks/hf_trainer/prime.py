"""Allocates the optimizer's state before the worst case is tried."""

from __future__ import annotations

from typing import Any, Callable, Sequence, Tuple

import torch


def prime_optimizer(trainer: Any) -> bool:
    """Makes the optimizer allocate its state, with unchanged weights.

    The state would otherwise appear at the end of the first step, so that the worst-case micro-batch of the warm-up met
    less memory in use than later ones (out-of-memory is typical at step 2 or 3). Runs one step at learning rate zero
    with zero gradients, then restores the step counters. Under ZeRO the gradients are those of the rank's own fp32
    share.

    Returns False if this optimizer cannot be primed (FSDP's own sharding, no plain learning rate, state on a disk).
    """
    if trainer.is_fsdp_enabled:
        return False
    outer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    if not trainer.is_deepspeed_enabled:
        groups = getattr(outer, "param_groups", None)
        return bool(groups) and _step_at_rest([outer], _parameters(groups), outer.step)
    inner = getattr(outer, "optimizer", None)
    if inner is None or getattr(outer, "swap_optimizer", False):
        return False
    if inner.state:
        return True
    parts = getattr(outer, "fp32_partitioned_groups_flat", None)  # ZeRO-3 steps them one by one
    if parts is None:
        return _step_at_rest([inner], _parameters(inner.param_groups), inner.step)
    both = [inner, *filter(None, [getattr(outer, "backup_optimizer", None)])]  # of the part that is not offloaded
    return _step_at_rest(both, parts, lambda: [outer._optimizer_step(index) for index in range(len(parts))])


def state_bytes(trainer: Any) -> Tuple[int, int]:
    """Returns the bytes of weights and of optimizer state on this rank, without temporarily gathered weights."""
    weights = 0
    for parameter in trainer.model.parameters():
        own = getattr(parameter, "ds_tensor", None)  # ZeRO-3's share of a weight, but small ones are kept whole
        if own is None:
            weights += _bytes(parameter)
        else:
            elements = parameter.ds_numel if getattr(parameter, "ds_persist", False) else own.numel()
            weights += int(elements * own.element_size())
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    if trainer.is_deepspeed_enabled:
        optimizer = getattr(optimizer, "optimizer", optimizer)
    states = [value for state in optimizer.state.values() for value in state.values()]
    return weights, sum(_bytes(value) for value in states if isinstance(value, torch.Tensor))


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _parameters(groups: Any) -> Sequence[Any]:
    return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]


def _step_at_rest(optimizers: Sequence[Any], parameters: Sequence[Any], step: Callable[[], Any]) -> bool:
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    if any(not isinstance(group.get("lr"), (int, float)) for group in groups):
        return False
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
    bare = [parameter for parameter in parameters if parameter.grad is None]
    for parameter in parameters:  # an offloaded optimizer has its gradients from the start, and needs them to stay
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
    step()
    for parameter in bare:
        parameter.grad = None
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for state in [state for optimizer in optimizers for state in optimizer.state.values()]:
        count = state.get("step")
        if isinstance(count, torch.Tensor):
            count.zero_()
        elif count is not None:
            state["step"] = 0
    return True
