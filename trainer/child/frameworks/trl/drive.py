"""Drives TRL's trainer cycle by cycle through the protocol, its methods assigned to the phases of a cycle."""

from __future__ import annotations

import functools
import sys
from typing import Any, Optional

import torch
from trl import GRPOTrainer

from ...contract import Phase
from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...meter import Meter
from ...trial import TrialContext
from ...usage import ShapesMet
from ..hf_trainer.cycle import TrainerLog, check_methods, install_update, split_by_gradient
from ..hf_trainer.loop import EngineCounters, Loop
from ..hf_trainer.quality import Quality
from ..hf_trainer.rollout import MeteredRollout
from .engine import ENGINE_KNOBS
from .rollout import TrlRollout
from .seams import SeamError, apply_seams

EARLIER = ENGINE_KNOBS | {"precision", "fp8_emulate"}
"""Seams that were applied before the trainer was built."""
METHODS = (
    "_generate",
    "_generate_single_turn",
    "_generate_and_score_completions",
    "_tokenize_prompts",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
)
"""Methods that this module wraps, besides ``hf_trainer.cycle.METHODS``."""


def drive(
    trial: TrialContext,
    trainer: Any,
    plan: CyclePlan,
    updates: int,
    meter: Meter,
    watch: Optional[EngineCounters] = None,
) -> None:
    """Installs the meter, trains, and checks that the protocol was fulfilled.

    ``watch`` is the engine's, if there is one.
    """
    spec, args = trial.spec, trainer.args
    check_methods(trainer, METHODS)
    generations = updates * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    rollout = TrlRollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    install_shapes(trainer, rollout.shapes)
    try:
        apply_seams({name: value for name, value in spec.seams.items() if name not in EARLIER}, trainer)
    except SeamError as error:
        raise IllegalSettingError(str(error)) from error
    trial.note("threads", {"torch": torch.get_num_threads()})
    seen = TrainerLog()
    quality = Quality(trainer, trial.journal, trial.rank)
    quality.install()
    rollout.before_sleep = meter.look
    rollout.install()
    install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality, watch)
    loop.install()
    loop.run(trainer.train)


def install_phases(trainer: Any, meter: Meter, rollout: MeteredRollout, seen: TrainerLog) -> None:
    """Wraps the methods that make up phases, and the methods that report a step."""
    trainer._generate = meter.wrap(trainer._generate, Phase.GENERATE)
    if trainer.use_vllm:
        engine = trainer.vllm_generation
        engine.sync_weights = meter.wrap(engine.sync_weights, Phase.SYNC)
    trainer._calculate_rewards = meter.wrap(trainer._calculate_rewards, Phase.REWARD)
    trainer._get_per_token_logps_and_entropies = split_by_gradient(trainer._get_per_token_logps_and_entropies, meter)
    install_update(trainer, meter, rollout, seen, sys.modules[GRPOTrainer.__module__])


def install_shapes(trainer: Any, shapes: ShapesMet) -> None:
    """Records shapes of passes without gradients in ``shapes``, before they are chunked; ``counting`` records the
    update's.
    """
    compute = trainer._get_per_token_logps_and_entropies

    @functools.wraps(compute)
    def met(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            rows, tokens = (kwargs["input_ids"] if "input_ids" in kwargs else args[1]).shape
            shapes.meet(min(int(rows), int(kwargs.get("batch_size") or rows)), int(tokens))
        return compute(*args, **kwargs)

    trainer._get_per_token_logps_and_entropies = met
