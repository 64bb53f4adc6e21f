"""Regions that an out-of-memory failure rules out: every configuration that needs at least as much memory. Pure.

A failure in one pool and phase is compared in the knobs that act on that pool in that phase, each with its direction
(sign); a knob of unknown direction must be equal. If a rollout server with its own GPUs ran out, training knobs do not
count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from autotune.domain import Configuration, FailureReason, Outcome, Phase, Pool, Trial, TrialState
from autotune.statistics import retries
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from trainer.child.contract import RunPaths, StartupPart

STEPS, ROWS = "steps_per_generation", "micro_batch_size"

_WEIGHTS = frozenset({StartupPart.IMPORT.value, StartupPart.LOAD.value})
"""Phases in which only memory is allocated that all later phases need too."""
_ENGINE = frozenset({StartupPart.SERVER.value, StartupPart.ENGINE.value, StartupPart.CAPTURE.value})
"""Phases in which the rollout engine is built for the sequences of one generation, in addition to the weights."""
SERVED = {"rollout_engine": "vllm", "rollout_mode": "server"}
_SERVERS = frozenset({StartupPart.SERVER.value, StartupPart.CAPTURE.value})
_SERVER_LOG = RunPaths(Path()).server_log.name
_COUNTS = frozenset({"rollout_gpus", "rollout_data_parallel_size"})
"""Knobs that set the number of a server's replicas, on which a replica's memory does not depend."""
_PHASES = frozenset(phase.value for phase in Phase) | _WEIGHTS | _ENGINE
_MAIN = frozenset({Pool.DEVICE.value, Pool.HOST.value})
_POOL_WORDS = {Pool.DEVICE: "device memory", Pool.HOST: "host memory", Pool.ROLLOUT_CACHE: "rollout cache"}


@dataclass(frozen=True)
class Region:
    """Configurations that need at least as much memory as one that ran out."""

    trial: int
    pool: Pool | None
    phase: str | None
    configuration: Configuration
    signs: tuple[tuple[str, int], ...]
    """Knobs that affect the memory: 1 if more needs more, -1 if more needs less, 0 if the value must be equal."""

    def __hash__(self) -> int:
        return hash(self.trial)  # of all its knobs it would take as long as asking a thousand candidates

    def compared(self, names: Iterable[str]) -> tuple[tuple[str, int], ...]:
        """Returns the signs for a comparison with knobs ``names``; a knob outside the catalogue must be equal."""
        return (*self.signs, *((name, 0) for name in names if name not in KNOBS and name not in self.configuration))

    def allows(self, name: str, sign: int, value: KnobValue | None) -> bool:
        """Tells whether a knob's value, as ``coordinate`` returns it, needs at least as much memory as the failed."""
        own = coordinate(name, self.configuration)
        level, least = _level(name, value), _level(name, own)
        if sign == 0 or least is None:
            return repr(value) == repr(own)  # which tells 1, 1.0 and True apart
        return level is not None and sign * level >= sign * least


def coordinate(name: str, configuration: Configuration) -> KnobValue | None:
    """Returns the value of ``configuration`` in knob ``name``; ``None`` if it is not set. Steps per generation become
    the rows that a rank generates at once, so that they vary independently of the micro-batch."""
    value = configuration.get(name)
    if name != STEPS:
        return value
    # Not set, or by the word: one generation serves a whole update.
    steps = value if _is_number(value) else configuration.get("gradient_accumulation_steps")
    rows = configuration.get(ROWS)
    return rows * steps if _is_number(rows) and _is_number(steps) else value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _level(name: str, value: KnobValue | None) -> float | None:
    """Returns a number that grows with the knob's value, or its index in ``Knob.order``; ``None`` without an order."""
    if isinstance(value, bool | int | float):
        return float(value)
    order = KNOBS[name].order if name in KNOBS else ()
    return float(order.index(value)) if value is not None and value in order else None


def region(trial: Trial, *, one_memory: bool) -> Region | None:
    """Returns the region that ``trial`` rules out; ``None`` if it did not run out of memory or no knob acts on that
    memory."""
    outcome = trial.outcome
    if trial.state is not TrialState.FAIL or outcome is None:
        return None
    if outcome.reason is not FailureReason.OOM or not outcome.fresh:
        return None
    pools = frozenset(Pool) if outcome.pool is None else frozenset({outcome.pool.value})
    pools = _MAIN if one_memory and pools <= _MAIN else pools
    phase = outcome.phase if outcome.phase in _PHASES else None
    signs = _signs(pools, phase)
    if not any(signs.values()):
        # The catalogue knows of no knob in this phase, so the phase cannot be what matters.
        phase, signs = None, _signs(pools, None)
    signs = {**signs, **{name: 0 for name in trial.configuration if name not in KNOBS}}
    if _of_server(trial.configuration, outcome):
        engine = {n for n in signs if n not in KNOBS or "rollout_engine" in KNOBS[n].needs} | set(SERVED)
        signs = {n: s for n, s in signs.items() if n in engine - _COUNTS}
    elif phase in _ENGINE and trial.configuration.get("max_num_seqs") is None:
        signs |= {ROWS: 1, STEPS: 1}
    if STEPS in signs and phase in _ENGINE | {Phase.GENERATE.value}:
        signs.pop(ROWS, None)  # its rows are counted by those of the generation
    if not any(signs.values()):
        return None
    return Region(trial.number, outcome.pool, outcome.phase, trial.configuration, tuple(sorted(signs.items())))


def _of_server(configuration: Configuration, outcome: Outcome) -> bool:
    """Tells whether a rollout server with its own GPUs ran out of memory."""
    if any(configuration.get(name) != value for name, value in SERVED.items()) or outcome.pool in (Pool.HOST, None):
        return False
    in_server = outcome.phase in _SERVERS or Path(outcome.log_path).name == _SERVER_LOG
    return in_server or outcome.pool is Pool.ROLLOUT_CACHE


def _signs(pools: frozenset[str], phase: str | None) -> dict[str, int]:
    """Returns the signs of the knobs that act on these pools in this phase."""
    found: dict[str, int] = {}
    for knob in KNOBS.values():
        acting = (e for e in knob.memory if str(e.pool) in pools)
        directions = {e.direction for e in acting if phase is None or not e.phases or phase in e.phases}
        if directions:
            found[knob.name] = directions.pop() if len(directions) == 1 else 0
    return found


def covers(region: Region, configuration: Configuration) -> bool:
    """Tells whether ``configuration`` needs at least as much memory as the one that failed."""
    compared = region.compared(configuration)
    return all(region.allows(name, sign, coordinate(name, configuration)) for name, sign in compared)


def sentence(region: Region, configuration: Configuration) -> str:
    """Explains in a sentence why ``region`` rules ``configuration`` out."""
    own = region.configuration
    names = (name for name, sign in region.signs if sign)
    beyond = [(n, v) for n in names if (v := coordinate(n, own)) is not None and v != coordinate(n, configuration)]
    settings = ", ".join(f"{'generation rows' if name == STEPS else name} {value}" for name, value in beyond)
    who = f"trial {region.trial} ({settings})" if settings else f"trial {region.trial}"
    pool = _POOL_WORDS[region.pool] if region.pool else "memory"
    where = f" in {region.phase}" if region.phase else ""
    return f"{who} ran out of {pool}{where}; this asks for at least as much"


def regions(trials: Iterable[Trial], *, one_memory: bool) -> tuple[Region, ...]:
    """Returns the regions that ``trials`` rule out, ordered by trial number.

    Only failures of a new worker count: a warm one may have failed because of earlier trials. A later successful retry
    inside a region removes it. ``one_memory``: device and host memory are the same (a CPU run).
    """
    ordered = sorted(trials, key=lambda t: t.number)
    passed = [t for t in ordered if retries.is_retry(t) and t.feasible]
    found = [one for t in ordered if (one := region(t, one_memory=one_memory)) is not None]
    return tuple(r for r in found if not any(t.number > r.trial and covers(r, t.configuration) for t in passed))
