"""Sets knobs that have no ms-swift argument, by patches from outside its code.

This file is also copied unchanged into an exported run, so it imports nothing of ours.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any, Dict, Mapping

import torch

METHOD = "_get_per_token_logps_and_entropies"


class SeamError(ValueError):
    """ms-swift cannot be patched for this knob, or the knob's patch cannot use the value."""


def install(seams: Mapping[str, Any]) -> None:
    """Applies the patches for ``seams``; called before the trainer is built. Raises ``SeamError`` if one fails."""
    for name, value in seams.items():
        if name != "logprob_rows":
            raise SeamError("ms-swift has no seam %r; it has logprob_rows" % name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SeamError("%s: expected a whole number above 0, got %r" % (name, value))
        _logprob_rows(value)


def _logprob_rows(rows: int) -> None:
    """Sets the rows of a pass without gradients (old and reference log-probs); the update's pass stays unchanged."""
    trainer = importlib.import_module("swift.rlhf_trainers.grpo_trainer").GRPOTrainer
    compute = getattr(trainer, METHOD, None)
    if compute is None:
        raise SeamError("this ms-swift has no GRPOTrainer.%s, so logprob_rows cannot be set" % METHOD)

    @functools.wraps(compute)
    def in_chunks(
        self: Any, model: Any, model_inputs: Dict[str, Any], grpo_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        count = model_inputs["input_ids"].shape[0]
        whole = torch.is_grad_enabled() or count <= rows or self.template.padding_free
        if whole or self.template.sequence_parallel_size > 1:
            return compute(self, model, model_inputs, grpo_batch, *args, **kwargs)
        parts = []
        for start in range(0, count, rows):
            taken = slice(start, start + rows)
            inputs = {name: _rows(value, taken, count) for name, value in model_inputs.items()}
            fields = {f.name: _rows(getattr(grpo_batch, f.name), taken, count) for f in dataclasses.fields(grpo_batch)}
            parts.append(compute(self, model, inputs, dataclasses.replace(grpo_batch, **fields), *args, **kwargs))
        return tuple(None if column[0] is None else torch.cat(column, dim=0) for column in zip(*parts, strict=True))

    setattr(trainer, METHOD, in_chunks)


def _rows(value: Any, rows: slice, count: int) -> Any:
    """Returns the ``rows`` of a tensor whose first size is ``count``; any other value unchanged."""
    if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == count:
        return value[rows]
    return value
