"""Drives TRL's trainer cycle by cycle through the protocol."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...meter import Meter
from ...trial import TrialContext
from ..hf_trainer.cycle import TrainerLog, check_methods
from ..hf_trainer.loop import EngineCounters, Loop
from ..hf_trainer.quality import Quality
from . import cycle
from .engine import ENGINE_KNOBS
from .rollout import TrlRollout
from .seams import SeamError, apply_seams

EARLIER = ENGINE_KNOBS | {"precision", "fp8_emulate"}
"""Seams that were applied before the trainer was built."""


def drive(
    trial: TrialContext,
    trainer: Any,
    plan: CyclePlan,
    updates: int,
    meter: Meter,
    watch: Optional[EngineCounters] = None,
) -> None:
    """Install the meter, train, and check that the protocol was fulfilled.

    Args:
        watch: of the engine, where there is one.
    """
    spec, args = trial.spec, trainer.args
    check_methods(trainer, cycle.METHODS)
    generations = updates * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    rollout = TrlRollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    cycle.install_shapes(trainer, rollout.shapes)
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
    cycle.install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality, watch)
    loop.install()
    loop.run(trainer.train)
