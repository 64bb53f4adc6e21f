"""One cycle of TRL: when it begins and ends, which phases it has, and what it records."""

from __future__ import annotations

import functools
import math
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from ...contract import CycleKind, CycleRecord, Phase, ProcessUse
from ...failures import MeterError, NotFiniteError
from ...guard import Verdict
from ...meter import Meter
from ...usage import ShapesMet
from .clipping import wrap_clipping
from .rollout import Rollout, Tally
from .together import Together, install_waits

METHODS = (
    "_generate",
    "_generate_single_turn",
    "_generate_and_score_completions",
    "_tokenize_prompts",
    "_calculate_rewards",
    "_get_per_token_logps_and_entropies",
    "compute_loss",
    "training_step",
    "get_batch_samples",
    "log",
    "_maybe_log_save_evaluate",
)
"""All that is wrapped; a trainer without one of them is not one this meter knows."""


def check_methods(trainer: Any) -> None:
    """Raises ``MeterError`` naming what is missing."""
    missing = [name for name in METHODS if not callable(getattr(trainer, name, None))]
    if missing:
        raise MeterError("this GRPOTrainer has no %s; its phases cannot be told apart" % ", ".join(missing))


@dataclass
class Seen:
    """What the trainer said of itself during a cycle."""

    losses: List[Any] = field(default_factory=list)
    logs: List[Dict[str, Any]] = field(default_factory=list)

    def mean(self, key: str) -> Optional[float]:
        values = [float(log[key]) for log in self.logs if isinstance(log.get(key), (int, float))]
        return sum(values) / len(values) if values else None

    def check(self, scaled: bool) -> None:
        """Raises ``NotFiniteError``. With a loss scaler (fp16) an infinite norm only means a skipped step."""
        if self.losses and not bool(torch.isfinite(torch.stack([x.float() for x in self.losses])).all()):
            raise NotFiniteError("the loss is not finite", Phase.UPDATE)
        norm = self.mean("grad_norm")
        if norm is not None and not math.isfinite(norm) and not scaled:
            raise NotFiniteError("the gradient norm is %r" % norm, Phase.UPDATE)


class OptimizerPhase(TrainerCallback):  # type: ignore[misc]
    """Optimizer step, scheduler and freeing of gradients, as part of the update."""

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


def install_phases(trainer: Any, meter: Meter, rollout: Rollout, seen: Seen) -> None:
    """Wrap the methods phases are made of, and those that say what a step did."""
    accelerator = trainer.accelerator
    trainer._generate = meter.wrap(trainer._generate, Phase.GENERATE)
    if trainer.use_vllm:
        engine = trainer.vllm_generation
        engine.sync_weights = meter.wrap(engine.sync_weights, Phase.SYNC)
    trainer._calculate_rewards = meter.wrap(trainer._calculate_rewards, Phase.REWARD)
    trainer._get_per_token_logps_and_entropies = split_by_gradient(trainer._get_per_token_logps_and_entropies, meter)
    trainer.compute_loss = counting(meter.wrap(trainer.compute_loss, Phase.UPDATE), rollout)
    accelerator.backward = meter.wrap(accelerator.backward, Phase.UPDATE)
    wrap_clipping(trainer, meter)
    trainer.add_callback(OptimizerPhase(meter))
    if accelerator.num_processes > 1:
        install_waits(sys.modules[GRPOTrainer.__module__], accelerator, meter)
    trainer.training_step = keeping_loss(trainer.training_step, seen)
    trainer.log = keeping_logs(trainer.log, seen)


def split_by_gradient(compute: Any, meter: Meter) -> Any:
    """Without gradients it is a log-prob pass of its own; with them it is the update's forward."""
    alone = meter.wrap(compute, Phase.LOGPROB)

    @functools.wraps(compute)
    def by_gradient(*args: Any, **kwargs: Any) -> Any:
        return (compute if torch.is_grad_enabled() else alone)(*args, **kwargs)

    return by_gradient


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


def counting(compute_loss: Any, rollout: Rollout) -> Any:
    """``compute_loss`` that tells ``rollout`` what it works on."""

    @functools.wraps(compute_loss)
    def counted(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        rollout.count_forward(inputs["prompt_ids"], inputs["completion_ids"])
        return compute_loss(model, inputs, *args, **kwargs)

    return counted


def keeping_loss(training_step: Any, seen: Seen) -> Any:
    """``training_step`` whose losses ``seen`` keeps."""

    @functools.wraps(training_step)
    def kept(*args: Any, **kwargs: Any) -> Any:
        loss = training_step(*args, **kwargs)
        seen.losses.append(loss)
        return loss

    return kept


def keeping_logs(log: Any, seen: Seen) -> Any:
    """``log`` whose figures ``seen`` keeps."""

    @functools.wraps(log)
    def kept(logs: Dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        result = log(logs, *args, **kwargs)
        seen.logs.append(dict(logs))
        return result

    return kept


@dataclass(frozen=True)
class Clocked:
    """A cycle as the clock saw it."""

    index: int
    kind: CycleKind
    started: float
    seconds: float
    phases: Dict[str, float]
    peaks: Any
    retries: Optional[Mapping[str, int]] = None
    """Of the CUDA allocator, by phase."""
    process: Optional[ProcessUse] = None


def over_ranks(tally: Tally, together: Together) -> Tally:
    """The tally of all ranks together."""
    if together.size == 1:
        return tally
    parts: List[Tally] = together.all(tally)
    whole = Tally(generations=tally.generations, widest=max(part.widest for part in parts))
    for part in parts:
        whole.lengths += part.lengths
        whole.clipped += part.clipped
        whole.prompt_tokens += part.prompt_tokens
        whole.computed_tokens += part.computed_tokens
    return whole


def make_record(
    clock: Clocked, tally: Tally, seen: Seen, verdict: Verdict, judged: Tuple[bool, bool], args: Any, rank: int
) -> CycleRecord:
    """Everything known of a finished cycle."""
    rows = len(tally.lengths)
    groups = rows // int(args.num_generations)
    zero_share = seen.mean("frac_reward_zero_std")
    return CycleRecord(
        index=clock.index,
        cycle_kind=clock.kind,
        seconds=clock.seconds,
        phases=clock.phases,
        completion_tokens=sum(tally.lengths),
        prompt_tokens=tally.prompt_tokens,
        rows=rows,
        updates=len(seen.losses) // int(args.gradient_accumulation_steps),
        computed_tokens=tally.computed_tokens,
        lengths=tuple(tally.lengths),
        peaks=clock.peaks,
        cpu_seconds=verdict.cpu_seconds,
        drift=verdict.drift,
        outside_cpu=verdict.outside_cpu,
        reference_seconds=verdict.reference,
        accepted=judged[0],
        noisy=judged[1],
        clipped_share=tally.clipped / rows if rows else None,
        groups=groups,
        zero_std_groups=round(zero_share * groups) if zero_share is not None else 0,
        reward_mean=seen.mean("reward"),
        loss=seen.mean("loss"),
        grad_norm=seen.mean("grad_norm"),
        alloc_retries=None if clock.retries is None else sum(clock.retries.values()),
        process=clock.process,
        rank=rank,
        started=clock.started,
    )
