"""Assigns the methods of TRL's trainer to the phases of a cycle."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from trl import GRPOTrainer

from ...contract import Phase
from ...meter import Meter
from ...usage import ShapesMet
from ..hf_trainer.cycle import TrainerLog, install_update, split_by_gradient
from ..hf_trainer.rollout import MeteredRollout

METHODS = (
    "_generate",
    "_generate_single_turn",
    "_generate_and_score_completions",
    "_tokenize_prompts",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
)
"""What is wrapped here (``hf_trainer.cycle.METHODS``)."""


def install_phases(trainer: Any, meter: Meter, rollout: MeteredRollout, seen: TrainerLog) -> None:
    """Wrap the methods phases are made of, and those that say what a step did."""
    trainer._generate = meter.wrap(trainer._generate, Phase.GENERATE)
    if trainer.use_vllm:
        engine = trainer.vllm_generation
        engine.sync_weights = meter.wrap(engine.sync_weights, Phase.SYNC)
    trainer._calculate_rewards = meter.wrap(trainer._calculate_rewards, Phase.REWARD)
    trainer._get_per_token_logps_and_entropies = split_by_gradient(trainer._get_per_token_logps_and_entropies, meter)
    install_update(trainer, meter, rollout, seen, sys.modules[GRPOTrainer.__module__])


def install_shapes(trainer: Any, shapes: ShapesMet) -> None:
    """Tell ``shapes`` of the passes without gradients; before anything cuts them into smaller ones, so that those are
    told. Of the update's passes ``counting`` tells."""
    compute = trainer._get_per_token_logps_and_entropies

    @functools.wraps(compute)
    def met(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            rows, tokens = (kwargs["input_ids"] if "input_ids" in kwargs else args[1]).shape
            shapes.meet(min(int(rows), int(kwargs.get("batch_size") or rows)), int(tokens))
        return compute(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = met
