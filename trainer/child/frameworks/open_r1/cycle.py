"""Assigns the methods of TRL 0.18's trainer to the phases of a cycle."""

from __future__ import annotations

import sys
from typing import Any

import torch
from trl.trainer import grpo_trainer

from ...contract import Phase
from ...meter import Meter
from ..hf_trainer.cycle import TrainerLog, install_update, split_by_gradient
from ..hf_trainer.rollout import MeteredRollout

METHODS = (
    "_generate_and_score_completions",
    "_get_per_token_logps",
    "_move_model_to_vllm",
)
"""What is wrapped here (``hf_trainer.cycle.METHODS``)."""


def install_phases(trainer: Any, meter: Meter, rollout: MeteredRollout, seen: TrainerLog) -> None:
    """Wrap the methods phases are made of, and those that say what a step did.

    ``_generate_and_score_completions`` holds generation, rewards and log-probs in one piece, so generation is what the
    model's or the engine's ``generate`` takes; tokenizing and padding around it are idle time.
    """
    accelerator = trainer.accelerator
    if trainer.use_vllm:
        engine = trainer.llm if trainer.vllm_mode == "colocate" else getattr(trainer, "vllm_client", None)
        if engine is not None:  # only the main process speaks to a server; the others wait for what it answers
            engine.generate = meter.wrap(engine.generate, Phase.GENERATE)
        trainer._move_model_to_vllm = meter.wrap(trainer._move_model_to_vllm, Phase.SYNC)
    else:
        model = accelerator.unwrap_model(trainer.model)
        model.generate = meter.wrap(model.generate, Phase.GENERATE)
    trainer.reward_funcs = [
        each if isinstance(each, torch.nn.Module) else meter.wrap(each, Phase.REWARD) for each in trainer.reward_funcs
    ]
    trainer._get_per_token_logps = split_by_gradient(trainer._get_per_token_logps, meter)
    module = sys.modules[grpo_trainer.__name__]
    install_update(trainer, meter, rollout, seen, module)
    if accelerator.num_processes > 1 and trainer.use_vllm and trainer.vllm_mode == "server":
        module.broadcast_object_list = meter.wrap(module.broadcast_object_list, Phase.WAIT)  # type: ignore[attr-defined]
