"""Drives the trainer of TRL 0.18 cycle by cycle through the protocol, by the loop TRL trials have."""

from __future__ import annotations

from typing import Any, Callable

import torch

from ...cycles import CyclePlan
from ...meter import Meter
from ...trial import TrialContext
from ..hf_trainer.cycle import TrainerLog, check_methods
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality
from . import cycle
from .rollout import OpenR1Rollout


def drive(
    trial: TrialContext, trainer: Any, plan: CyclePlan, updates: int, meter: Meter, train: Callable[[], Any]
) -> None:
    """Install the meter, train, and check that the protocol was fulfilled."""
    spec, args = trial.spec, trainer.args
    check_methods(trainer, cycle.METHODS)
    trial.note("threads", {"torch": torch.get_num_threads()})
    generations = updates * args.gradient_accumulation_steps // (args.steps_per_generation * args.num_iterations)
    rollout = OpenR1Rollout(trainer, spec.max_prompt_length, spec.max_completion_length, generations, trial.rank)
    seen = TrainerLog()
    # TRL 0.18 returns no log-probs of its engine: gradients alone are compared.
    quality = Quality(trainer, trial.journal, trial.rank, trainer._get_per_token_logps, judged=False)
    quality.install()
    rollout.install()
    cycle.install_phases(trainer, meter, rollout, seen)
    loop = Loop(trial, trainer, plan, updates, meter, rollout, seen, quality)
    loop.install()
    loop.run(train)
