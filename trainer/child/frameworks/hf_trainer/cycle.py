"""Patches a transformers ``Trainer``'s methods to measure cycles, and builds the record of a cycle."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import torch
from transformers import TrainerCallback

from ...contract import CycleRecord, Phase
from ...failures import MeterError, NotFiniteError
from ...guard import GuardReading
from ...meter import Meter
from .around import replace
from .clipping import wrap_clipping
from .rollout import CycleTally, MeteredRollout
from .together import Together, install_waits

METHODS = ("compute_loss", "training_step", "get_batch_samples", "log", "_maybe_log_save_evaluate")
"""Methods that are wrapped in every trainer; a trainer without them is not supported."""


def check_methods(trainer: Any, methods: Sequence[str]) -> None:
    """Raises ``MeterError`` with the names in ``methods`` and ``METHODS`` that the trainer lacks."""
    missing = [name for name in (*methods, *METHODS) if not callable(getattr(trainer, name, None))]
    if missing:
        raise MeterError("this GRPOTrainer has no %s; its phases cannot be told apart" % ", ".join(missing))


@dataclass
class TrainerLog:
    """Collects losses and gradient norms that the trainer logged during a cycle."""

    losses: List[Any] = field(default_factory=list)
    logs: List[Dict[str, Any]] = field(default_factory=list)

    def mean(self, key: str) -> Optional[float]:
        values = [float(log[key]) for log in self.logs if isinstance(log.get(key), (int, float))]
        return sum(values) / len(values) if values else None

    def check(self, scaled: bool) -> None:
        """Raises ``NotFiniteError`` if loss or gradient norm is not finite; a loss scaler (fp16) allows any norm."""
        if self.losses and not bool(torch.isfinite(torch.stack([x.float() for x in self.losses])).all()):
            raise NotFiniteError("the loss is not finite", Phase.UPDATE)
        norm = self.mean("grad_norm")
        if norm is not None and not math.isfinite(norm) and not scaled:
            raise NotFiniteError("the gradient norm is %r" % norm, Phase.UPDATE)


class OptimizerPhase(TrainerCallback):  # type: ignore[misc]
    """Attributes the time of optimizer, scheduler and the freeing of gradients to the update."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._open = False

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._meter.push(Phase.UPDATE)
        self._open = True

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self._open:
            self._meter.pop()
            self._open = False


def split_by_gradient(compute: Any, meter: Meter) -> Any:
    """Wraps a forward pass: without gradients it counts as ``logprob``, with them as ``update``."""
    alone = meter.wrap(compute, Phase.LOGPROB)

    @functools.wraps(compute)
    def by_gradient(*args: Any, **kwargs: Any) -> Any:
        return (compute if torch.is_grad_enabled() else alone)(*args, **kwargs)

    return by_gradient


def install_update(trainer: Any, meter: Meter, rollout: MeteredRollout, reports: TrainerLog, module: Any) -> None:
    """Patches the trainer: attributes times to update and waits, counts inputs, and collects losses and logs."""

    def compute_loss(compute: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rollout.count_inputs(inputs)
        return compute(model, inputs, *args, **kwargs)

    def training_step(step: Any, *args: Any, **kwargs: Any) -> Any:
        reports.losses.append(step(*args, **kwargs))
        return reports.losses[-1]

    def log(write: Any, logs: Any, *args: Any, **kwargs: Any) -> Any:
        result = write(logs, *args, **kwargs)
        reports.logs.append(dict(logs))  # the trainer adds its metrics to them
        return result

    accelerator = trainer.accelerator
    trainer.compute_loss = meter.wrap(trainer.compute_loss, Phase.UPDATE)
    accelerator.backward = meter.wrap(accelerator.backward, Phase.UPDATE)
    wrap_clipping(trainer, meter)
    trainer.add_callback(OptimizerPhase(meter))
    if accelerator.num_processes > 1:
        install_waits(module, accelerator, meter)
    for replacement in (compute_loss, training_step, log):
        replace(trainer, replacement.__name__, replacement)


def over_ranks(tally: CycleTally, together: Together) -> CycleTally:
    """Returns the tally over all ranks: sums, and the widest micro-batch."""
    if together.size == 1:
        return tally
    parts: List[CycleTally] = together.all(tally)
    whole = CycleTally(generations=tally.generations, widest=max(part.widest for part in parts))
    for part in parts:
        whole.lengths += part.lengths
        whole.clipped += part.clipped
        whole.prompt_tokens += part.prompt_tokens
        whole.computed_tokens += part.computed_tokens
    return whole


def make_record(tally: CycleTally, log: TrainerLog, verdict: GuardReading, args: Any, **known: Any) -> CycleRecord:
    """Builds the record of a finished cycle; ``known`` are the fields that the loop knows."""
    rows = len(tally.lengths)
    groups = rows // int(args.num_generations)
    zero_share = log.mean("frac_reward_zero_std")
    return CycleRecord(
        completion_tokens=sum(tally.lengths),
        prompt_tokens=tally.prompt_tokens,
        rows=rows,
        updates=len(log.losses) // int(args.gradient_accumulation_steps),
        computed_tokens=tally.computed_tokens,
        lengths=tuple(tally.lengths),
        cpu_seconds=verdict.cpu_seconds,
        drift=verdict.drift,
        outside_cpu=verdict.outside_cpu,
        reference_seconds=verdict.reference,
        clipped_share=tally.clipped / rows if rows else None,
        groups=groups,
        zero_std_groups=round(zero_share * groups) if zero_share is not None else 0,
        reward_mean=log.mean("reward"),
        loss=log.mean("loss"),
        grad_norm=log.mean("grad_norm"),
        **known,
    )
