"""Drives ms-swift's trainer cycle by cycle through the protocol, by the loop that TRL trials have."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, List, Tuple

from ...contract import CycleKind, NoteRecord, Phase, StartupPart
from ...cycles import CyclePlan
from ...failures import IllegalSettingError, MeterError
from ...journal import Journal
from ...meter import Meter
from ...trial import TrialContext
from ..hf_trainer import cycle
from ..hf_trainer.clipping import wrap_clipping
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality, ratios
from ..hf_trainer.together import Together, install_waits
from .rollout import SwiftRollout

METHODS = (
    "_generate_and_score_completions",
    "_rollout_samples",
    "_compute_rewards_per_func",
    "_prepare_batch_inputs",
    "_get_per_token_logps_and_entropies",
    "_move_model_to_vllm",
    "compute_loss",
    "training_step",
    "get_batch_samples",
    "log",
    "_maybe_log_save_evaluate",
)
"""All that is wrapped; a trainer without one of them is not one this meter knows."""


def drive(
    trial: TrialContext, trainer: Any, plan: CyclePlan, updates: int, meter: Meter, train: Callable[[], Any]
) -> Any:
    """Install the meter, train, and check that the protocol was fulfilled."""
    spec, args = trial.spec, trainer.args
    cycle.check_methods(trainer, METHODS)
    check_rows(trial, trainer)
    per_generation = args.steps_per_generation * int(trainer.template.sequence_parallel_size) * args.num_iterations
    generations = updates * args.gradient_accumulation_steps // per_generation
    rollout = SwiftRollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    seen = cycle.TrainerLog()
    quality = SwiftQuality(trainer, trial.journal, trial.rank)
    quality.install()
    rollout.install()
    install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality)
    loop.install()
    trial.part = StartupPart.FIRST_BATCH
    trial.journal.mark(StartupPart.FIRST_BATCH.value)
    result = loop.run(train)
    if plan.next() is not None:
        raise MeterError("training ended before the protocol was fulfilled")
    return result


def check_rows(trial: TrialContext, trainer: Any) -> None:
    """Raises ``IllegalSettingError`` where an update has other rows than the trial is of.

    By now ms-swift has multiplied the accumulation by the ranks that share a sequence (``GRPOTrainer.__init__``).
    """
    args, ranks = trainer.args, int(trainer.accelerator.num_processes)
    own = ranks // int(trainer.template.sequence_parallel_size)
    rows = int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps) * own
    if rows != trial.spec.rows_per_update:
        sizes = (rows, trial.spec.rows_per_update)
        raise IllegalSettingError("these settings make %d rows per update, the trial is of %d" % sizes)


def install_phases(trainer: Any, meter: Meter, rollout: SwiftRollout, seen: cycle.TrainerLog) -> None:
    """Wrap the methods phases are made of, and those that say what a step did."""
    accelerator = trainer.accelerator
    trainer._rollout_samples = meter.wrap(trainer._rollout_samples, Phase.GENERATE)
    if trainer.args.use_vllm:
        trainer._move_model_to_vllm = meter.wrap(trainer._move_model_to_vllm, Phase.SYNC)
    trainer._compute_rewards_per_func = meter.wrap(trainer._compute_rewards_per_func, Phase.REWARD)
    compute = trainer._get_per_token_logps_and_entropies
    trainer._get_per_token_logps_and_entropies = cycle.split_by_gradient(compute, meter)
    trainer.compute_loss = _counting(meter.wrap(trainer.compute_loss, Phase.UPDATE), rollout)
    accelerator.backward = meter.wrap(accelerator.backward, Phase.UPDATE)
    wrap_clipping(trainer, meter)
    trainer.add_callback(cycle.OptimizerPhase(meter))
    if accelerator.num_processes > 1:
        install_waits(sys.modules["swift.rlhf_trainers.grpo_trainer"], accelerator, meter)
    trainer.training_step = cycle.keeping_loss(trainer.training_step, seen)
    trainer.log = cycle.keeping_logs(trainer.log, seen)


def _counting(compute_loss: Any, rollout: SwiftRollout) -> Any:
    @functools.wraps(compute_loss)
    def counted(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rollout.count_batch(inputs[0] if isinstance(inputs, list) else inputs)
        return compute_loss(model, inputs, *args, **kwargs)

    return counted


class SwiftQuality(Quality):
    """Whether rollout and trainer agree; ms-swift computes the trainer's log-probs in every cycle anyway.

    Gradients are not compared with those of bf16, and that is noted.
    """

    def __init__(self, trainer: Any, journal: Journal, rank: int = 0) -> None:
        self._trainer = trainer
        self._journal = journal
        self._rank = rank
        self._together = Together(trainer.accelerator)
        self._judged = _samples_freely(trainer.args)
        self._parts: List[Tuple[Any, Any]] = []
        self._last = None

    def install(self) -> None:
        prepare = self._trainer._prepare_batch_inputs

        @functools.wraps(prepare)
        def prepare_batch_inputs(*args: Any, **kwargs: Any) -> Any:
            batches = prepare(*args, **kwargs)
            for batch in batches:
                told = batch["grpo_batch"]
                if told.rollout_per_token_logps is not None and told.old_per_token_logps is not None:
                    parts = ratios(told.old_per_token_logps, told.rollout_per_token_logps, told.completion_mask)
                    self._parts.append(parts)
            return batches

        self._trainer._prepare_batch_inputs = prepare_batch_inputs
        if self._rank == 0:
            self._journal.write(NoteRecord("gradient_not_compared", {"why": "it is not read from ms-swift"}))

    def begin(self, kind: CycleKind) -> None:
        self._kind = kind
        self._parts.clear()
        self._last = None


def _samples_freely(args: Any) -> bool:
    """Whether the rollout draws from the whole policy: cut to its likeliest tokens it has other log-probs by design."""
    cut = args.top_p < 1.0 or args.top_k > 0 or args.min_p > 0.0
    return not cut and args.repetition_penalty in (None, 1.0)
