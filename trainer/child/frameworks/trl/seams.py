"""Sets knobs that have no TRL setting, by patches from outside its code.

This file is also copied unchanged into an exported configuration, so it imports nothing of ours.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Mapping

import torch


class SeamError(ValueError):
    """TRL cannot be patched for this knob, or the knob's patch cannot use the value."""


def apply_seams(seams: Mapping[str, Any], trainer: Any) -> None:
    """Patches the trainer for ``seams``. Raises ``SeamError`` for an unknown knob, or an unusable value."""
    for name, value in seams.items():
        if name not in SEAMS:
            raise SeamError("TRL has no seam %r; it has %s" % (name, ", ".join(sorted(SEAMS))))
        if name in SWITCHES:
            if not isinstance(value, bool):
                raise SeamError("%s: expected true or false, got %r" % (name, value))
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise SeamError("%s: expected a whole number above 0, got %r" % (name, value))
        SEAMS[name](value, trainer)


def _logprob_rows(rows: int, trainer: Any) -> None:
    """Sets the rows of a pass without gradients (old and reference log-probs); the update's pass stays unchanged."""
    compute = trainer._get_per_token_logps_and_entropies

    @functools.wraps(compute)
    def in_chunks(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            kwargs["batch_size"] = rows
        return compute(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = in_chunks


def _token_chunk(tokens: int, _: Any) -> None:
    """Sets the tokens of an LM-head tile in this module only; another kernel has a constant of the same name."""
    _set_constant("trl.kernels.chunked_logprob", "TOKEN_CHUNK_SIZE", tokens)


def _vocab_chunk(width: int, _: Any) -> None:
    """Sets the vocabulary entries of an LM-head tile, in every module that copied the constant."""
    name = "_CHUNKED_LOGPROB_CHUNK_SIZE"
    _set_constant("trl.trainer.utils", name, width)
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("trl.") and name in vars(module):
            setattr(module, name, width)


def _activation_offload(enabled: bool, trainer: Any) -> None:
    """Keeps activations in host memory until the backward pass, as TRL's SFT and DPO trainers do."""
    if not enabled:
        return
    if trainer.accelerator.device.type != "cuda":
        raise SeamError("activation_offload needs a GPU: on a CPU activations are in host memory already")
    try:
        from trl.models import get_act_offloading_ctx_manager
    except ImportError as error:
        raise SeamError("this TRL cannot offload activations, so the knob cannot be set: %s" % error) from error
    offloading, step = get_act_offloading_ctx_manager(model=trainer.model), trainer.training_step

    @functools.wraps(step)
    def training_step(*args: Any, **kwargs: Any) -> Any:
        with offloading:
            return step(*args, **kwargs)

    trainer.training_step = training_step


def _set_constant(module_name: str, name: str, value: int) -> None:
    module = sys.modules.get(module_name)
    if module is None or not hasattr(module, name):
        raise SeamError("this TRL has no %s.%s, so the knob cannot be set" % (module_name, name))
    setattr(module, name, value)


SWITCHES = frozenset({"activation_offload"})
SEAMS: Dict[str, Callable[[Any, Any], None]] = {
    "activation_offload": _activation_offload,
    "logprob_rows": _logprob_rows,
    "logprob_token_chunk": _token_chunk,
    "logprob_vocab_chunk": _vocab_chunk,
}
