"""Drives the trainer of TRL 0.18 cycle by cycle through the protocol, by the loop TRL trials have."""

from __future__ import annotations

import sys
from typing import Any, Callable

import torch
from trl.trainer import grpo_trainer

from ...contract import Phase
from ...cycles import CyclePlan
from ...meter import Meter
from ...trial import TrialContext
from ..hf_trainer.cycle import TrainerLog, check_methods, install_update, split_by_gradient
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality
from ..hf_trainer.rollout import MeteredRollout
from .rollout import OpenR1Rollout

METHODS = (
    "_generate_and_score_completions",
    "_get_per_token_logps",
    "_move_model_to_vllm",
)
"""Methods that this module wraps, besides ``hf_trainer.cycle.METHODS``."""


def drive(
    trial: TrialContext, trainer: Any, plan: CyclePlan, updates: int, meter: Meter, train: Callable[[], Any]
) -> None:
    """Installs the meter, trains, and checks that the protocol was fulfilled."""
    spec, args = trial.spec, trainer.args
    check_methods(trainer, METHODS)
    trial.note("threads", {"torch": torch.get_num_threads()})
    generations = updates * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    rollout = OpenR1Rollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    seen = TrainerLog()
    # TRL 0.18 returns no log-probs of its engine: gradients alone are compared.
    quality = Quality(trainer, trial.journal, trial.rank, trainer._get_per_token_logps, judged=False)
    quality.install()
    rollout.install()
    install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality)
    loop.install()
    loop.run(train)


def install_phases(trainer: Any, meter: Meter, rollout: MeteredRollout, seen: TrainerLog) -> None:
    """Wraps the methods that make up phases, and the methods that report a step.

    ``_generate_and_score_completions`` holds generation, rewards and log-probs together, so generation is the time of
    the model's or the engine's ``generate``; tokenizing and padding around it are idle time.
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
