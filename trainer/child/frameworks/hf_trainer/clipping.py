"""Attributes the time of gradient clipping to the update, in transformers' trainers."""

from __future__ import annotations

from typing import Any

from ...contract import Phase
from ...meter import Meter

METHODS = ("_clip_grad_norm", "_get_grad_norm")
"""Methods of transformers 5; earlier versions call accelerate's ``clip_grad_norm_`` inside the training loop."""


def wrap_clipping(trainer: Any, meter: Meter) -> None:
    """Wraps gradient clipping so that its time counts as the update, in any supported version of transformers."""
    there = [name for name in METHODS if callable(getattr(trainer, name, None))]
    for name in there:
        setattr(trainer, name, meter.wrap(getattr(trainer, name), Phase.UPDATE))
    if not there:
        accelerator = trainer.accelerator
        accelerator.clip_grad_norm_ = meter.wrap(accelerator.clip_grad_norm_, Phase.UPDATE)
