"""Plans the kind of each step of verl, and converts each step's log line to a cycle record."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ...contract import (
    CycleKind,
    CycleRecord,
    NoteRecord,
    Peaks,
    Phase,
    ProcessUse,
    Protocol,
    Record,
    TrialSpec,
    WorstCaseRecord,
)
from ...cycles import CyclePlan, assign, doubled, resample
from ...failures import MeterError, NotFiniteError
from ...guard import MachineCpu, TreeUse, machine_cpu, taken_share, tree_use
from .board import Board, FileTally, Places, StepTargets, publish
from .overrides import GENERATIONS, MICRO_ROWS, PROMPTS, settings_of

TIMERS: Mapping[str, Phase] = {
    "gen": Phase.GENERATE,
    "reward": Phase.REWARD,
    "old_log_prob": Phase.LOGPROB,
    "ref": Phase.LOGPROB,
    "update_actor": Phase.UPDATE,
    "update_weights": Phase.SYNC,
}
"""verl's timer -> phase. The rest of a step, ``adv`` included, counts as idle: no model works in it."""
LIMITS: Mapping[str, str] = {
    "generate": "verl's gen holds the reward too, computed while it generates, and putting the engine to sleep",
    "reward": "only a reward model of verl's own has a time apart, timing_s/reward",
    "peaks": "of device memory, verl's allocator counts since the process began and never starts anew",
    "host": "verl logs the memory used on the whole machine, not the trial's, so it is left out",
    "lengths": "verl logs mean, largest and smallest length, not each",
    "zero_std_groups": "verl does not log how many groups had the same reward throughout",
    "logp_mismatch": "verl logs differences of probabilities, not of log-probs",
}
"""Figure -> its difference from other frameworks' records, written as a note."""
STALE = "training/off_policy/evicted_samples"
"""Prompts whose completions verl dropped as stale in a step (``trainer/ppo/v1/replay_buffer.py``); the lengths that a
step logs are those of rows it trains on."""
_SLACK = 0.001
"""Share of a step by which its timers may exceed it: both are read from the same clock, one after the other."""


class MetricsError(ValueError):
    """A line that is not in verl's format; the message names the expected format."""


@dataclass(frozen=True)
class StepLayout:
    """Completions, updates and epochs of a step of verl."""

    rows: int
    """Completions of a step."""
    updates: int
    """Optimizer updates of a step."""
    epochs: int
    """Times each completion is trained on."""
    packed: bool
    """Whether rows are trained on without padding, so that computed tokens equal useful ones."""
    warmup: int = 1
    """Number of untimed steps, the first ones."""
    group: int = 1
    """Completions of a prompt."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], protocol: Protocol) -> StepLayout:
        """Returns the layout of ``TrialSpec.settings`` (verl's keys)."""
        actor = "actor_rollout_ref.actor."
        prompts, update = settings["data.train_batch_size"], settings[actor + "ppo_mini_batch_size"]
        packed = settings["actor_rollout_ref.model.use_remove_padding"] and not settings[actor + "pad_to_length"]
        epochs = settings.get(actor + "ppo_epochs", 1)
        group = settings["actor_rollout_ref.rollout.n"]
        return cls(prompts * group, prompts // update * epochs, epochs, bool(packed), protocol.warmup, group)


def cycle_of(data: Mapping[str, Any], index: int, plan: StepLayout, where: str = "step") -> CycleRecord:
    """Returns the cycle record of one step.

    Args:
        data: metric -> number, or ``None`` if it is not finite.

    Raises:
        MetricsError: a required figure is missing, or the phases do not fit into the step.
    """
    seconds = _number(data, "timing_s/step", where)
    if seconds <= 0:
        raise MetricsError("%s: timing_s/step: expected a positive number of seconds, got %r" % (where, seconds))
    means = (_number(data, f"{kind}_length/mean", where) for kind in ("prompt", "response"))
    prompts, completions = (round(mean * plan.rows) for mean in means)
    computed = int(_number(data, "perf/total_num_tokens", where)) if plan.packed else 0
    return CycleRecord(
        index=index,
        cycle_kind=CycleKind.WARMUP if index < plan.warmup else CycleKind.NATURAL,
        seconds=seconds,
        phases=_phases(data, seconds, where),
        completion_tokens=completions,
        prompt_tokens=prompts,
        rows=plan.rows,
        updates=plan.updates,
        computed_tokens=computed * plan.epochs,
        peaks={"cycle": _peaks(data)},
        clipped_share=_optional(data, "response_length/clip_ratio"),
        stale_rows=round(_optional(data, STALE) or 0) * plan.group,
        reward_mean=_optional(data, "critic/score/mean"),
        loss=_optional(data, "actor/loss"),
        grad_norm=_optional(data, "actor/grad_norm"),
    )


def data_of(line: Union[str, bytes], number: int) -> Dict[str, Any]:
    """Returns metric -> value of a log line; ``number`` names the line in messages.

    Raises MetricsError for a line that is not in verl's format.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise MetricsError("line %d: not JSON: %s" % (number, error)) from None
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict) or not isinstance(found.get("step"), int):
        raise MetricsError('line %d: expected {"step": number, "data": {...}}, as verl\'s file logger writes' % number)
    return data


def _phases(data: Mapping[str, Any], seconds: float, where: str) -> Dict[str, float]:
    """Returns seconds by phase; seconds of the step without a timer of verl are idle."""
    found: Dict[str, float] = {}
    for timer, phase in TIMERS.items():
        if "timing_s/" + timer in data:
            found[phase.value] = found.get(phase.value, 0.0) + _number(data, "timing_s/" + timer, where)
    rest = seconds - sum(found.values())
    if rest < -_SLACK * seconds:
        raise MetricsError(
            "%s: its phases take %.3f s, longer than the step's %.3f s" % (where, seconds - rest, seconds)
        )
    found[Phase.IDLE.value] = max(0.0, rest)
    return found


def _peaks(data: Mapping[str, Any]) -> Peaks:
    found = {}
    for name in ("allocated", "reserved"):
        gib = _optional(data, "actor/perf/max_memory_%s_gb" % name)
        found["device_" + name] = None if gib is None else int(gib * (1 << 30))
    return Peaks(**found)


def _number(data: Mapping[str, Any], key: str, where: str) -> float:
    found = _optional(data, key)
    if found is None:
        raise MetricsError("%s: %s: expected a number, got %r" % (where, key, data.get(key)))
    return found


def _optional(data: Mapping[str, Any], key: str) -> Optional[float]:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


TRAINED = ("actor/loss", "actor/grad_norm")
"""Metrics that verl's logger writes as null if they are not finite."""
DIFFERENCE = 0.01
"""Relative difference between logged and generated tokens above which a note is written."""


def kinds_of(protocol: Protocol) -> Tuple[CycleKind, ...]:
    """Returns the kinds of all steps, in order; verl runs them without a pause, so no step can be repeated."""
    plan = once(protocol)
    found: List[CycleKind] = []
    while (kind := plan.next()) is not None:
        plan.done[kind] += 1
        found.append(kind)
    return tuple(found)


def once(protocol: Protocol) -> CyclePlan:
    """Returns a plan without repeats: disturbed cycles are kept and marked."""
    return CyclePlan(replace(protocol, max_repeats=0))


@dataclass(frozen=True)
class StepClock:
    """Snapshot at the end of a step: clock times, and CPU use so far of verl's processes and the machine."""

    at: float
    """Time of the step's end, in monotonic seconds."""
    wall: float
    machine: Optional[MachineCpu]
    own: TreeUse
    """CPU use of this process and its descendants, verl's among them."""

    @classmethod
    def now(cls) -> StepClock:
        return cls(time.monotonic(), time.time(), machine_cpu(), tree_use())


@dataclass
class StepSequence:
    """The steps of one trial."""

    spec: TrialSpec
    places: Places
    tally: FileTally
    kinds: Tuple[CycleKind, ...] = ()
    steps: List[StepTargets] = field(default_factory=list)
    """Published steps."""
    done: int = 0
    """Steps whose lines were read."""
    noted: bool = False

    def __post_init__(self) -> None:
        self.kinds = kinds_of(self.spec.protocol)
        self._settings: Mapping[str, Any] = settings_of(self.spec)
        self._step = StepLayout.of(self._settings, self.spec.protocol)
        self._plan = once(self.spec.protocol)
        self._lengths: Sequence[int] = self.spec.protocol.lengths
        self._natural: List[int] = []
        self._before: Optional[StepClock] = None

    @property
    def finished(self) -> bool:
        """True if every step of the protocol was made."""
        return self.done == len(self.kinds)

    @property
    def kind(self) -> CycleKind:
        """Kind of the current step; after the last step, its kind."""
        return self.kinds[min(self.done, len(self.kinds) - 1)]

    @property
    def generated(self) -> bool:
        """True if all completions of the current step exist."""
        return len(self.tally.rows.get(self.done + 1, {})) >= self._step.rows

    def begin(self) -> None:
        """Publishes the steps known at the start: all, if the completion lengths are known."""
        self.places.folder.mkdir(parents=True, exist_ok=True)
        self._publish()

    def _publish(self) -> None:
        turns = {kind: sum(1 for step in self.steps if step.kind is kind) for kind in CycleKind}
        for kind in self.kinds[len(self.steps) :]:
            if kind in (CycleKind.RECORDED, CycleKind.DOUBLE) and not self._lengths:
                break
            self.steps.append(StepTargets(kind, self._targets(kind, turns[kind]), stretched=kind is CycleKind.WARMUP))
            turns[kind] += 1
        prompts, group = int(self._settings[PROMPTS]), int(self._settings[GENERATIONS])
        total, longest = len(self.kinds), self.spec.max_prompt_length
        publish(self.places, Board(prompts, group, total, longest, tuple(self.steps)))

    def _targets(self, kind: CycleKind, turn: int) -> Optional[Tuple[int, ...]]:
        """Returns a step's completion lengths: in a warm-up all at maximum, as verl assigns rows to micro-batches."""
        longest = self.spec.max_completion_length
        if kind is CycleKind.NATURAL:
            return None
        if kind in (CycleKind.WARMUP, CycleKind.MAXIMUM):
            return (longest,) * self._step.rows
        dealt = assign(self._lengths, self._step.rows, self.spec.seed, turn)
        return doubled(dealt, longest) if kind is CycleKind.DOUBLE else dealt

    def line(self, line: bytes) -> List[Record]:
        """Reads one line of verl's log; ignores lines that do not end a step.

        Raises:
            MetricsError: the line is not in verl's format.
            MeterError: the step differs from its plan.
            NotFiniteError: a trained value is not finite.
        """
        number = self.done + 1
        data = data_of(line, number)
        if "timing_s/step" not in data:
            return []
        if self.finished:
            raise MeterError("verl went on after its last step")
        now = StepClock.now()
        for key in TRAINED:
            if key in data and _optional(data, key) is None:
                raise NotFiniteError("verl logs no finite %s in step %d" % (key, number), Phase.UPDATE)
        kind = self.kinds[self.done]
        self.tally.look()
        record = self._clocked(cycle_of(data, self.done, self._step, "step %d" % number), now, kind)
        rows = self._rows(number)
        records: List[Record] = [self._counted(record, rows), *self._differs(record, rows)]
        self.done, self._before = number, now
        records += self._after(kind, rows, record)
        return records

    def _clocked(self, record: CycleRecord, now: StepClock, kind: CycleKind) -> CycleRecord:
        """Returns the record with the seconds between log lines, which include verl's work between steps."""
        before, seconds, cpu, outside, process = self._before, record.seconds, 0.0, None, None
        if before is not None:
            seconds, cpu = max(seconds, now.at - before.at), max(0.0, now.own.cpu - before.own.cpu)
            process = ProcessUse(
                system_seconds=max(0.0, now.own.system - before.own.system),
                minor_faults=max(0, now.own.minor_faults - before.own.minor_faults),
            )
            if before.machine is not None and now.machine is not None:
                waited = now.own.waited_since(before.own)
                outside = taken_share(before.machine, now.machine, cpu, waited, now.at - before.at)
        idle = record.phases[Phase.IDLE.value] + seconds - record.seconds
        accepted, noisy = self._plan.judge(kind, outside)
        return replace(
            record,
            cycle_kind=kind,
            seconds=seconds,
            phases={**record.phases, Phase.IDLE.value: idle},
            cpu_seconds=cpu,
            process=process,
            outside_cpu=outside,
            accepted=accepted,
            noisy=noisy,
            started=now.wall - seconds,
        )

    def _rows(self, number: int) -> List[Tuple[int, int]]:
        """Returns (prompt tokens, completion tokens) of each row of step ``number``, in order.

        Raises MeterError for missing rows, which verl ignores, or rows with other lengths than set.
        """
        found = self.tally.rows.get(number, {})
        if len(found) < self._step.rows:
            sizes = (number, len(found), self._step.rows)
            raise MeterError("step %d has %d of %d completions; the log says what became of the others" % sizes)
        rows = [found[row] for row in sorted(found)]
        wanted = self.steps[number - 1].lengths
        got = tuple(completion for _, completion in rows)
        if wanted is not None and got != wanted:
            raise MeterError("asked for completions of %s tokens, got %s" % (list(wanted), list(got)))
        return rows

    def _counted(self, record: CycleRecord, rows: Sequence[Tuple[int, int]]) -> CycleRecord:
        prompts, group = int(self._settings[PROMPTS]), int(self._settings[GENERATIONS])
        first = record.index * prompts
        scores = [self.tally.scores.get(number, []) for number in range(first, first + prompts)]
        whole = [each for each in scores if len(each) == group]
        return replace(
            record,
            lengths=tuple(completion for _, completion in rows),
            completion_tokens=sum(completion for _, completion in rows),
            prompt_tokens=sum(prompt for prompt, _ in rows),
            groups=len(whole),
            zero_std_groups=sum(1 for each in whole if len(set(each)) == 1),
        )

    def _differs(self, record: CycleRecord, rows: Sequence[Tuple[int, int]]) -> List[Record]:
        """Returns a note, once in a trial, if verl's own token count differs from the generated tokens."""
        generated = sum(completion for _, completion in rows)
        if self.noted or abs(record.completion_tokens - generated) <= DIFFERENCE * generated:
            return []
        self.noted = True
        return [NoteRecord("verl_tokens", {"logged": record.completion_tokens, "generated": generated})]

    def _after(self, kind: CycleKind, rows: Sequence[Tuple[int, int]], record: CycleRecord) -> List[Record]:
        if kind is CycleKind.WARMUP and (self.finished or self.kinds[self.done] is not kind):
            return [self._worst_case(rows, record)]
        if kind is CycleKind.NATURAL:
            self._natural += [completion for _, completion in rows]
            waits = len(self.steps) < len(self.kinds)
            if waits and self.kinds[self.done] is not kind:
                self._lengths = resample(self._natural, self.spec.rows_per_update, self.spec.seed)
                self._publish()
                return [NoteRecord("lengths", {"lengths": list(self._lengths)})]
        return []

    def _worst_case(self, rows: Sequence[Tuple[int, int]], record: CycleRecord) -> WorstCaseRecord:
        prompt, completion = min(prompt for prompt, _ in rows), min(completion for _, completion in rows)
        if prompt < self.spec.max_prompt_length or completion < self.spec.max_completion_length:
            raise MeterError("the worst case was %d + %d tokens wide" % (prompt, completion))
        peaks = record.peaks.get("cycle", Peaks())
        return WorstCaseRecord(int(self._settings[MICRO_ROWS]), prompt, completion, record.seconds, peaks)
