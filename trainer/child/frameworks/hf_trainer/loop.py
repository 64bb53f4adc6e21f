"""Drives a transformers ``Trainer`` through the protocol's cycles; each framework has a subclass of ``Loop``."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Optional, Sequence, Tuple, Type

import torch

from ...checks import check_weights
from ...contract import CycleKind, CycleRecord, Peaks, Phase, StartupPart, StartupRecord, WorstCaseRecord
from ...cycles import CyclePlan, Settling, assign, doubled, resample
from ...failures import MeterError
from ...guard import ClockGuard, ReferenceKernel, server_pid
from ...journal import is_enough
from ...memory import ThrashWatch, check_limit
from ...meter import GradientSync
from ...trial import TrialContext
from . import cycle
from .around import replace
from .compiling import graphs
from .quality import Quality
from .rollout import MeteredRollout
from .together import Together


def prime_optimizer(trainer: Any) -> bool:
    """Makes the optimizer allocate its state, with unchanged weights.

    The state would otherwise appear at the end of the first step, and the worst-case micro-batch of the warm-up would
    run with less memory in use than later ones (out-of-memory is typical at step 2 or 3). Runs one step at learning
    rate zero with zero gradients, then restores the step counters. Under ZeRO the gradients are those of the rank's own
    fp32 share.

    Returns False if this optimizer cannot be primed (FSDP's own sharding, no plain learning rate, state on a disk).
    """
    if trainer.is_fsdp_enabled:
        return False
    outer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    if not trainer.is_deepspeed_enabled:
        groups = getattr(outer, "param_groups", None)
        return bool(groups) and _step_at_rest([outer], _parameters(groups), outer.step)
    inner = getattr(outer, "optimizer", None)
    if inner is None or getattr(outer, "swap_optimizer", False):
        return False
    if inner.state:
        return True
    parts = getattr(outer, "fp32_partitioned_groups_flat", None)  # ZeRO-3 steps them one by one
    if parts is None:
        return _step_at_rest([inner], _parameters(inner.param_groups), inner.step)
    both = [inner, *filter(None, [getattr(outer, "backup_optimizer", None)])]  # of the part that is not offloaded
    return _step_at_rest(both, parts, lambda: [outer._optimizer_step(index) for index in range(len(parts))])


def state_bytes(trainer: Any) -> Tuple[int, int]:
    """Returns the bytes of weights and of optimizer state on this rank, without temporarily gathered weights."""
    weights = 0
    for parameter in trainer.model.parameters():
        own = getattr(parameter, "ds_tensor", None)  # ZeRO-3's share of a weight, but small ones are kept whole
        if own is None:
            weights += _bytes(parameter)
        else:
            elements = parameter.ds_numel if getattr(parameter, "ds_persist", False) else own.numel()
            weights += int(elements * own.element_size())
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    if trainer.is_deepspeed_enabled:
        optimizer = getattr(optimizer, "optimizer", optimizer)
    states = [value for state in optimizer.state.values() for value in state.values()]
    return weights, sum(_bytes(value) for value in states if isinstance(value, torch.Tensor))


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _parameters(groups: Any) -> Sequence[Any]:
    return [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]


def _step_at_rest(optimizers: Sequence[Any], parameters: Sequence[Any], step: Callable[[], Any]) -> bool:
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    if any(not isinstance(group.get("lr"), (int, float)) for group in groups):
        return False
    rates = [group["lr"] for group in groups]
    for group in groups:
        group["lr"] = 0.0
    bare = [parameter for parameter in parameters if parameter.grad is None]
    for parameter in parameters:  # an offloaded optimizer has its gradients from the start, and needs them to stay
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.zero_()
    step()
    for parameter in bare:
        parameter.grad = None
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
    for state in [state for optimizer in optimizers for state in optimizer.state.values()]:
        count = state.get("step")
        if isinstance(count, torch.Tensor):
            count.zero_()
        elif count is not None:
            state["step"] = 0
    return True


SDPA_KERNELS = {
    "cudnn": "cudnn_sdp_enabled",
    "flash": "flash_sdp_enabled",
    "mem_efficient": "mem_efficient_sdp_enabled",
    "math": "math_sdp_enabled",
}
"""Kernel of ``scaled_dot_product_attention`` -> function of ``torch.backends.cuda`` that tells if it is enabled."""


class Loop:
    """Divides the trainer's steps into cycles. A cycle begins when the trainer fetches its first batch and ends when
    its last update has been logged, so that it includes everything a user would wait for.

    A subclass names the methods and the rollout of one framework.
    """

    METHODS: ClassVar[Tuple[str, ...]]
    """Methods that a subclass and its rollout wrap, besides ``cycle.METHODS``, ``PHASES`` and ``LOGPS``."""
    PHASES: ClassVar[Mapping[str, Phase]]
    """Method of the trainer -> its phase."""
    LOGPS: ClassVar[str] = "_get_per_token_logps_and_entropies"
    """Method of the trainer that computes log-probs."""
    ROLLOUT: ClassVar[Type[MeteredRollout]]
    MODULE: ClassVar[str] = "trl.trainer.grpo_trainer"
    """Module of the trainer's class."""

    def __init__(self, trial: TrialContext, trainer: Any, updates: int, watch: Any = None) -> None:
        """Prepares the loop; ``updates``: optimizer updates in a cycle, ``watch``: the engine's counters, if any."""
        cycle.check_methods(trainer, (*self.METHODS, *self.PHASES, self.LOGPS))
        self._trial = trial
        self._spec = trial.spec
        self._trainer = trainer
        self._plan = CyclePlan(trial.spec.protocol)
        self._updates = updates
        self._meter = trial.meter or trial.open_meter()
        args, longest = trainer.args, (trial.spec.max_prompt_length, trial.spec.max_completion_length)
        per_generation = args.steps_per_generation * self.sharing() * args.num_iterations
        generations = updates * args.gradient_accumulation_steps // per_generation
        self._rollout = self.ROLLOUT(trainer, *longest, generations, trial.rank)
        self._seen = cycle.TrainerLog()
        self._graphs = graphs()
        self._watch = watch
        self._guard = ClockGuard(ReferenceKernel(trial.spec.device), server_pid() if trial.rank == 0 else None)
        self._thrash = ThrashWatch()
        self._together = Together(trainer.accelerator)
        self._settling = Settling(self._plan, lambda mine: bool(self._together.all(mine)[0]))
        self._gradients = GradientSync(None)
        self._index = -1
        self._kind: Optional[CycleKind] = None
        self._started = 0.0
        self._clocked = 0.0
        self._overhead = 0.0
        self._natural: List[int] = []
        lengths, rows = trial.spec.protocol.lengths, trial.spec.rows_per_update
        self._lengths: Sequence[int] = resample(lengths, rows, trial.spec.seed) if lengths else ()

    def sharing(self) -> int:
        """Returns the number of ranks that share a sequence."""
        return 1

    def prepare(self) -> None:
        """Changes the trainer as the configuration requires, before anything is measured."""

    def quality(self) -> Quality:
        """Returns the quality guard of the framework."""
        return Quality(self._trainer, self._trial.journal, self._trial.rank)

    def wrap_phases(self) -> None:
        """Attributes the time of methods before the update to their phases."""
        trainer, meter = self._trainer, self._meter
        for name, phase in self.PHASES.items():
            setattr(trainer, name, meter.wrap(getattr(trainer, name), phase))
        setattr(trainer, self.LOGPS, cycle.split_by_gradient(getattr(trainer, self.LOGPS), meter))

    def drive(self, train: Callable[[], Any]) -> Any:
        """Installs the measuring code, runs ``train()``, and checks that the protocol was completed."""
        self.prepare()
        self._trial.note("threads", {"torch": torch.get_num_threads()})
        self._quality = self.quality()
        self._quality.install()
        self._rollout.install()
        self.wrap_phases()
        module = sys.modules[self.MODULE]
        cycle.install_update(self._trainer, self._meter, self._rollout, self._seen, module)
        self.install()
        return self.run(train)

    def install(self) -> None:
        trainer = self._trainer

        def get_batch_samples(fetch: Any, *args: Any, **kwargs: Any) -> Any:
            if self._kind is None:
                self._open()
            return fetch(*args, **kwargs)

        def maybe_log_save_evaluate(after_step: Any, *args: Any, **kwargs: Any) -> Any:
            result = after_step(*args, **kwargs)
            if self._kind is not None and trainer.state.global_step % self._updates == 0:
                self._close()
            return result

        replace(trainer, "get_batch_samples", get_batch_samples)
        replace(trainer, "_maybe_log_save_evaluate", maybe_log_save_evaluate)
        self._trial.note("attention", attention_facts(trainer.model))
        self._prepared = time.perf_counter()

    def run(self, train: Callable[[], Any]) -> Any:
        """Runs ``train()``; records every finished cycle, however ``train()`` ends.

        Raises:
            NotFiniteError: the model's weights are NaN.
            MeterError: it ended before the protocol was completed.
        """
        self._trial.part = StartupPart.FIRST_BATCH
        self._trial.journal.mark(StartupPart.FIRST_BATCH.value)
        check_weights(self._trainer.model)
        try:
            result = train()
        finally:
            self._tell(self._settling.rest())
        if self._plan.next() is not None:
            raise MeterError("training ended before the protocol was fulfilled")
        return result

    def _tell(self, records: Sequence[CycleRecord]) -> None:
        for record in records:
            self._trial.journal.write(record)

    def _open(self) -> None:
        kind = self._plan.next()
        if kind is None:
            raise MeterError("the trainer went on after the last cycle")
        if self._index < 0:
            self._first()
        self._index += 1
        self._kind = kind
        self._rollout.aim(kind, self._targets(kind), stretch_last=kind is CycleKind.WARMUP)
        self._seen.losses.clear()
        self._seen.logs.clear()
        self._quality.begin(kind)
        if self._watch is not None:
            self._watch.begin()
        self._together.wait()  # the reference kernel runs on all ranks at once, as the cycle does
        self._guard.before(timed=kind is not CycleKind.WARMUP)
        self._meter.begin(self._index, kind.value, meet=self._together.wait)
        self._started = time.time()

    def _first(self) -> None:
        if self._trial.rank == 0:
            seconds = time.perf_counter() - self._prepared
            self._trial.journal.write(StartupRecord(StartupPart.FIRST_BATCH, seconds))
        self._trial.part = None
        self._gradients = GradientSync(getattr(self._trainer, "model_wrapped", None))
        if self._plan.protocol.warmup and not prime_optimizer(self._trainer):
            self._trial.note("optimizer_not_primed")
        if self._together.size > 1:
            weights, optimizer = zip(*self._together.all(state_bytes(self._trainer)), strict=True)
            self._trial.note("held", {"weights": weights, "optimizer": optimizer})

    def _targets(self, kind: CycleKind) -> Optional[Sequence[int]]:
        rows = self._rows
        if kind is CycleKind.MAXIMUM:
            return [self._spec.max_completion_length] * rows
        if kind is CycleKind.RECORDED and not self._lengths:
            self._lengths = resample(self._natural, self._spec.rows_per_update, self._spec.seed)
            self._trial.note("lengths", {"lengths": list(self._lengths)})
        if kind is CycleKind.NATURAL or not self._lengths:
            return None
        dealt = assign(self._lengths, rows, self._spec.seed, self._plan.done[kind])
        return doubled(dealt, self._spec.max_completion_length) if kind is CycleKind.DOUBLE else dealt

    @property
    def _rows(self) -> int:
        """Completions generated in a cycle, over all ranks."""
        return self._updates * self._spec.rows_per_update // int(self._trainer.args.num_iterations)

    def _close(self) -> None:
        kind = self._kind
        assert kind is not None  # noqa: S101  (narrowing; ``_open`` set it)
        self._together.wait()
        seconds, phases = self._together.slowest(*self._meter.end())
        verdict = self._together.verdict(self._guard.after(self._together.total))
        peaks = self._meter.peaks()
        self._kind = None
        self._clocked += seconds
        self._overhead += self._meter.overhead
        self._trial.facts["meter_share"] = self._overhead / self._clocked
        scaled = bool(self._trainer.args.fp16)  # by accelerate's scaler, or by DeepSpeed's own
        self._seen.check(scaled)
        before, self._graphs = self._graphs, graphs()
        compiled = any(self._together.all(self._graphs > before))
        judged = self._plan.judge(kind, verdict.outside_cpu, compiled)
        if compiled:
            self._trial.note("compiled", {"cycle": self._index, "kind": kind.value})
        tally = cycle.over_ranks(self._rollout.tally, self._together)
        retries = self._meter.retries()
        usage = self._meter.usage(self._rollout.take_shapes())
        record = cycle.make_record(
            tally,
            self._seen,
            verdict,
            self._trainer.args,
            index=self._index,
            cycle_kind=kind,
            seconds=seconds,
            phases=phases,
            peaks=peaks,
            accepted=judged[0],
            noisy=judged[1],
            alloc_retries=None if retries is None else sum(retries.values()),
            process=None if usage is None else dataclasses.replace(usage, **self._gradients.take()),
            logp_mismatch=self._quality.mismatch(),
            rank=self._trial.rank,
            started=self._started,
            **self._engine_use(),
        )
        self._pass_on(record, tally, retries)

    def _pass_on(self, record: CycleRecord, tally: cycle.CycleTally, retries: Optional[Mapping[str, int]]) -> None:
        """Writes the records that are settled, checks the cycle, and decides whether the training ends."""
        kind, peaks, accepted = record.cycle_kind, record.peaks, record.accepted
        records = self._settling.pass_on(record)
        self._tell(records)
        self._quality.check()
        self._thrash.cycle(kind, retries)
        check_limit(peaks, self._spec.memory_limit)
        if kind is CycleKind.NATURAL and accepted:
            self._natural += tally.lengths
        if kind is CycleKind.WARMUP and self._plan.next() is not CycleKind.WARMUP:
            self._worst_case(record.seconds, tally, peaks)
        if kind is CycleKind.RECORDED and accepted and self._spec.protocol.looks and records[-1:] == [record]:
            self._ask()
        if self._plan.next() is None:
            self._trainer.control.should_training_stop = True

    def _ask(self) -> None:
        """Asks the parent whether the recorded cycles suffice; all ranks receive rank 0's answer."""
        mine = self._trial.rank == 0 and is_enough(self._trial.paths, self._index)
        if any(self._together.all(mine)):
            self._plan.ended = True
            self._trial.facts["ended_after"] = self._plan.done[CycleKind.RECORDED]

    def _engine_use(self) -> Dict[str, Any]:
        if self._watch is None:
            return {}
        preemptions, usage = self._watch.end()
        return {"preemptions": preemptions, "cache_usage": usage, "engine_bytes": self._watch.engine_bytes}

    def _worst_case(self, seconds: float, tally: Any, peaks: Any) -> None:
        _, prompt, completion = tally.widest
        if prompt < self._spec.max_prompt_length or completion < self._spec.max_completion_length:
            raise MeterError("the worst case was %d + %d tokens wide" % (prompt, completion))
        rows = int(self._trainer.args.per_device_train_batch_size)
        highest = self._together.highest(peaks.get("cycle", Peaks()))
        if self._trial.rank == 0:
            self._trial.journal.write(WorstCaseRecord(rows, prompt, completion, seconds, highest))


def attention_facts(model: Any) -> Dict[str, Any]:
    """Returns ``implementation`` of the model, and ``sdpa``: kernels that ``scaled_dot_product_attention`` may use on a
    GPU, chosen for each shape. Omits kernels unknown to this torch."""
    questions = {name: getattr(torch.backends.cuda, question, None) for name, question in SDPA_KERNELS.items()}
    enabled = [name for name, question in questions.items() if question is not None and question()]
    implementation = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return {"implementation": implementation, "sdpa": enabled}
