"""Drives ms-swift's trainer cycle by cycle through the protocol, by the loop that TRL trials have."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

from ...checks import check_rows
from ...contract import NoteRecord, Phase
from ...cycles import CyclePlan
from ...meter import Meter
from ...trial import TrialContext
from ..hf_trainer import cycle
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality, ratios
from .rollout import SwiftRollout

METHODS = (
    "_generate_and_score_completions",
    "_rollout_samples",
    "_compute_rewards_per_func",
    "_prepare_batch_inputs",
    "_get_per_token_logps_and_entropies",
    "_move_model_to_vllm",
)
"""Methods that this module wraps, besides ``hf_trainer.cycle.METHODS``."""


def drive(
    trial: TrialContext, trainer: Any, plan: CyclePlan, updates: int, meter: Meter, train: Callable[[], Any]
) -> Any:
    """Installs the meter, trains, and checks that the protocol was fulfilled."""
    spec, args = trial.spec, trainer.args
    cycle.check_methods(trainer, METHODS)
    # By now ms-swift has multiplied the accumulation by the ranks that share a sequence (``GRPOTrainer.__init__``).
    sharing = int(trainer.template.sequence_parallel_size)
    own = int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps)
    check_rows(own * (int(trainer.accelerator.num_processes) // sharing), spec)
    per_generation = args.steps_per_generation * sharing * args.num_iterations
    generations = updates * args.gradient_accumulation_steps // per_generation
    rollout = SwiftRollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    seen = cycle.TrainerLog()
    quality = SwiftQuality(trainer, trial.journal, trial.rank, judged=_samples_freely(args))
    quality.install()
    rollout.install()
    install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality)
    loop.install()
    return loop.run(train)


def install_phases(trainer: Any, meter: Meter, rollout: SwiftRollout, seen: cycle.TrainerLog) -> None:
    """Wraps the methods that make up phases, and the methods that report a step."""
    trainer._rollout_samples = meter.wrap(trainer._rollout_samples, Phase.GENERATE)
    if trainer.args.use_vllm:
        trainer._move_model_to_vllm = meter.wrap(trainer._move_model_to_vllm, Phase.SYNC)
    trainer._compute_rewards_per_func = meter.wrap(trainer._compute_rewards_per_func, Phase.REWARD)
    compute = trainer._get_per_token_logps_and_entropies
    trainer._get_per_token_logps_and_entropies = cycle.split_by_gradient(compute, meter)
    cycle.install_update(trainer, meter, rollout, seen, sys.modules["swift.rlhf_trainers.grpo_trainer"])


class SwiftQuality(Quality):
    """Guard of the agreement of rollout and trainer, from the log-probs that ms-swift computes in every cycle.

    Gradients are not compared with those of bf16; a note states it.
    """

    def install(self) -> None:
        prepare = self._trainer._prepare_batch_inputs

        @functools.wraps(prepare)
        def prepare_batch_inputs(*args: Any, **kwargs: Any) -> Any:
            batches = prepare(*args, **kwargs)
            for batch in batches:
                grpo_batch = batch["grpo_batch"]
                if grpo_batch.rollout_per_token_logps is not None and grpo_batch.old_per_token_logps is not None:
                    policies = grpo_batch.old_per_token_logps, grpo_batch.rollout_per_token_logps
                    parts = ratios(*policies, grpo_batch.completion_mask)
                    self._parts.append(parts)
            return batches

        self._trainer._prepare_batch_inputs = prepare_batch_inputs
        if self._rank == 0:
            self._journal.write(NoteRecord("gradient_not_compared", {"why": "it is not read from ms-swift"}))


def _samples_freely(args: Any) -> bool:
    """Tells whether the rollout samples from the whole policy; a truncated one has other log-probs by design."""
    cut = args.top_p < 1.0 or args.top_k > 0 or args.min_p > 0.0
    return not cut and args.repetition_penalty in (None, 1.0)
