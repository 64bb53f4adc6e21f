"""Converts verl's file log to cycle records: one verl step is one cycle.

verl 0.9.1 writes a line ``{"step": n, "data": {...}}`` for each step (``verl/utils/tracking.py``, logger ``file``);
``trainer/ppo/v1/trainer_base.py`` and ``trainer/ppo/metric_utils.py`` define its keys. Figures that verl does not
separate are not guessed: see ``LIMITS``.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Union

from ...contract import CycleKind, CycleRecord, Peaks, Phase, Protocol

TIMERS: Mapping[str, Phase] = {
    "gen": Phase.GENERATE,
    "reward": Phase.REWARD,
    "old_log_prob": Phase.LOGPROB,
    "ref": Phase.LOGPROB,
    "update_actor": Phase.UPDATE,
    "update_weights": Phase.SYNC,
}
"""verl's timer -> phase. The rest of a step, its ``adv`` among it, is idle: it is no work of a model's."""
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
"""Share of a step by which its timers may exceed it: they read the same clock one after the other."""


class MetricsError(ValueError):
    """A line that is not in verl's format; the message names the expected one."""


@dataclass(frozen=True)
class StepLayout:
    """Rows, updates and epochs of a verl step."""

    rows: int
    """Completions of a step."""
    updates: int
    """Optimizer updates of a step."""
    epochs: int
    """Times each completion is trained on."""
    packed: bool
    """Whether rows are trained on without padding, so that computed tokens equal useful ones."""
    warmup: int = 1
    """First steps that are not timed."""
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
        MetricsError: a figure every step has is missing, or the phases do not fit into the step.
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
    """Returns metric -> number of a line; ``number`` names the line in messages.

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
    """Returns seconds by phase; time without a timer of verl is idle."""
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
