"""Assigns the methods of TRL 0.18's trainer to the phases of a cycle."""

from __future__ import annotations

import sys
from typing import Any

import torch
from trl.trainer import grpo_trainer

from ...contract import Phase
from ...journal import Journal
from ...meter import Meter
from ..hf_trainer.clipping import wrap_clipping
from ..hf_trainer.cycle import OptimizerPhase, TrainerLog, counting, keeping_logs, keeping_loss, split_by_gradient
from ..hf_trainer.quality import Quality
from ..hf_trainer.rollout import MeteredRollout
from ..hf_trainer.together import Together, install_waits

METHODS = (
    "_generate_and_score_completions",
    "_get_per_token_logps",
    "_move_model_to_vllm",
    "compute_loss",
    "training_step",
    "get_batch_samples",
    "log",
    "_maybe_log_save_evaluate",
)
"""All that is wrapped; a trainer without one of them is not one this meter knows."""


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
    trainer.compute_loss = counting(meter.wrap(trainer.compute_loss, Phase.UPDATE), rollout)
    accelerator.backward = meter.wrap(accelerator.backward, Phase.UPDATE)
    wrap_clipping(trainer, meter)
    trainer.add_callback(OptimizerPhase(meter))
    if accelerator.num_processes > 1:
        module = sys.modules[grpo_trainer.__name__]
        install_waits(module, accelerator, meter)
        if trainer.use_vllm and trainer.vllm_mode == "server":
            module.broadcast_object_list = meter.wrap(module.broadcast_object_list, Phase.WAIT)  # type: ignore[attr-defined]
    trainer.training_step = keeping_loss(trainer.training_step, seen)
    trainer.log = keeping_logs(trainer.log, seen)


class OpenR1Quality(Quality):
    """Compares gradients only, because TRL 0.18 returns no log-probs of its engine."""

    def __init__(self, trainer: Any, journal: Journal, rank: int = 0) -> None:
        self._trainer = trainer
        self._journal = journal
        self._rank = rank
        self._together = Together(trainer.accelerator)
        self._logps = trainer._get_per_token_logps
        self._judged = False
        self._kind = None
        self._compared = False
        self._parts = []
        self._last = None
