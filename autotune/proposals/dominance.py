"""Regions that an out-of-memory failure rules out: every configuration that needs at least as much. Pure.

A failure in one pool and phase is compared along the knobs that act on that pool in that phase, each with its signed
direction; a knob of unknown direction must be equal. Where a rollout server has GPUs of its own, the knobs of the
other side do not count. A knob in ``SLIGHT`` is presumed not to make up for twice the micro-batch, until a feasible
trial shows otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from autotune.domain import Configuration, FailureReason, Outcome, Phase, Pool, Trial, TrialState
from autotune.statistics import retries
from search_spaces.knobs import KNOBS, Knob
from trainer.child.contract import RunPaths, StartupPart

GENERATION_ROWS = "generation rows"
"""Rows a rank generates at once: micro_batch_size x steps_per_generation. Neither factor says anything alone."""

SLIGHT = frozenset({"optimizer"})
"""Their memory is held when the activations are gone again, so it hardly moves the peak those make."""

_PHASES = frozenset(phase.value for phase in Phase)
_WEIGHTS = frozenset({StartupPart.IMPORT.value, StartupPart.LOAD.value})
"""Nothing has been computed yet: only what acts in any phase has been allocated."""
_ENGINE = frozenset({StartupPart.SERVER.value, StartupPart.ENGINE.value, StartupPart.CAPTURE.value})
"""The rollout engine has been built beside the weights, for as many sequences as it will be given."""

SERVED = {"rollout_engine": "vllm", "rollout_mode": "server"}
SPLIT, REPLICAS = "rollout_gpus", "rollout_data_parallel_size"
"""A replica holds the same however many there are; of GPUs that shard the training, fewer hold more each."""
_SERVER_LOG = RunPaths(Path()).server_log.name
_SERVERS = frozenset({StartupPart.SERVER.value, StartupPart.CAPTURE.value})
_TRAINERS = frozenset(
    {*(Phase.UPDATE.value, Phase.LOGPROB.value, Phase.REWARD.value), *_WEIGHTS, StartupPart.ENGINE.value}
)
"""Of a trial with a rollout server: phases that are its own, not the server's, if its own log tells of them."""

UNSET = repr(None)
"""``value_text`` of a knob that is not set."""

_POOL_WORDS = {Pool.DEVICE: "device memory", Pool.HOST: "host memory", Pool.ROLLOUT_CACHE: "rollout cache"}


class Side(Enum):
    """Whose GPUs were full, where a rollout server has its own."""

    TRAINING = "training"
    SERVER = "server"


@dataclass(frozen=True)
class Bound:
    """A condition of a region: ``sign * need >= sign * level``, or equality where ``sign`` is 0."""

    quantity: str
    """A knob's name, or ``GENERATION_ROWS``."""
    sign: int
    level: float
    """Of the failed configuration; 0.0 where ``sign`` is 0."""
    value: str = ""
    """``value_text`` of the failed configuration, compared where ``sign`` is 0."""
    shown: str = ""
    """The failed configuration's value as people read it."""


@dataclass(frozen=True)
class Region:
    """A region of configurations that need at least as much as one that ran out of memory."""

    trial: int
    pool: Pool | None
    phase: str | None
    bounds: tuple[Bound, ...]

    def __hash__(self) -> int:
        # Of all its bounds it would take as long as asking a thousand candidates, and of a trial there are two regions.
        return hash((self.trial, len(self.bounds)))


def presumed(region: Region) -> Region | None:
    """Region with at least twice the micro-batch and otherwise the same bounds, without those of slight knobs."""
    bounds = {b.quantity: b for b in region.bounds}
    rows = bounds.get("micro_batch_size")
    if rows is None or rows.sign != 1 or not any(bounds[n].sign for n in SLIGHT & set(bounds)):
        return None
    twice = replace(rows, level=2 * rows.level)
    return replace(region, bounds=tuple(twice if b is rows else b for b in region.bounds if b.quantity not in SLIGHT))


def region(trial: Trial, *, one_memory: bool) -> Region | None:
    """Region that ``trial`` rules out; ``None`` if it did not run out of memory or no knob acts on that memory."""
    outcome = trial.outcome
    if trial.state is not TrialState.FAIL or outcome is None:
        return None
    if outcome.reason is not FailureReason.OOM or not outcome.fresh:
        return None
    pools = _pools(outcome.pool, one_memory)
    phase = outcome.phase if outcome.phase in _PHASES | _WEIGHTS | _ENGINE else None
    side = _side(trial.configuration, outcome)
    bounds = _bounds(trial.configuration, pools, phase, side)
    if phase is not None and not any(b.sign for b in bounds):
        # The catalogue knows of no knob in this phase, so the phase cannot be what matters.
        bounds = _bounds(trial.configuration, pools, None, side)
    if not any(b.sign for b in bounds):
        return None
    return Region(trial.number, outcome.pool, outcome.phase, bounds)


def _side(configuration: Configuration, outcome: Outcome) -> Side | None:
    """``None``: there is one side only, the host's memory is everybody's, or nobody knows."""
    if any(configuration.get(name) != value for name, value in SERVED.items()) or outcome.pool in (Pool.HOST, None):
        return None
    of_server = outcome.pool is Pool.ROLLOUT_CACHE or Path(outcome.log_path).name == _SERVER_LOG
    if of_server or outcome.phase in _SERVERS:
        return Side.SERVER
    return Side.TRAINING if outcome.phase in _TRAINERS else None


def covers(region: Region, configuration: Configuration) -> bool:
    """Whether ``configuration`` needs at least as much as the one that failed."""
    for bound in region.bounds:
        if bound.sign == 0:
            if value_text(bound.quantity, configuration) != bound.value:
                return False
            continue
        level = need(bound.quantity, configuration)
        if level is None or bound.sign * level < bound.sign * bound.level:
            return False
    return True


def sentence(region: Region, configuration: Configuration) -> str:
    """Why ``region`` rules ``configuration`` out, for people."""
    beyond = [b for b in region.bounds if b.sign and _shown(b.quantity, configuration) != b.shown]
    settings = ", ".join(f"{b.quantity} {b.shown}" for b in beyond)
    who = f"trial {region.trial} ({settings})" if settings else f"trial {region.trial}"
    pool = _POOL_WORDS[region.pool] if region.pool else "memory"
    where = f" in {region.phase}" if region.phase else ""
    return f"{who} ran out of {pool}{where}; this asks for at least as much"


def need(quantity: str, configuration: Configuration) -> float | None:
    """A number that grows with the knob's value (or its place in ``Knob.order``); ``None`` if it has none."""
    if quantity == GENERATION_ROWS:
        return generation_rows(configuration)
    value = configuration.get(quantity)
    if isinstance(value, bool | int | float):
        return float(value)
    order = KNOBS[quantity].order if quantity in KNOBS else ()
    return float(order.index(value)) if value is not None and value in order else None


def value_text(quantity: str, configuration: Configuration) -> str:
    """A knob's value as text that tells ``1``, ``1.0`` and ``True`` apart; ``None`` where it is not set."""
    return repr(configuration.get(quantity))


def _pools(pool: Pool | None, one_memory: bool) -> frozenset[str]:
    """The pools whose knobs bear on a failure in ``pool``; an unknown pool may be any."""
    if pool is None:
        return frozenset(p.value for p in Pool)
    main = {Pool.DEVICE.value, Pool.HOST.value}
    return frozenset(main) if one_memory and pool.value in main else frozenset({pool.value})


def _bounds(
    configuration: Configuration,
    pools: frozenset[str],
    phase: str | None,
    side: Side | None,
) -> tuple[Bound, ...]:
    """The conditions under which another configuration needs at least as much as ``configuration``."""
    names = sorted(set(KNOBS) | set(configuration))
    signs = {n: s for n in names if (s := _sign(KNOBS.get(n), pools, phase)) is not None}
    if side is not None:
        signs = _on_side(signs, side)
    elif phase in _ENGINE and configuration.get("max_num_seqs") is None:
        # An engine that is not told for how many sequences is built for those of one generation.
        signs.update({"micro_batch_size": 1, "steps_per_generation": 1})
    if "steps_per_generation" in signs and generation_rows(configuration) is not None:
        sign = signs.pop("steps_per_generation")
        if phase == Phase.GENERATE.value or phase in _ENGINE:
            signs.pop("micro_batch_size", None)
        signs[GENERATION_ROWS] = sign
    return tuple(_bound(name, sign, configuration) for name, sign in sorted(signs.items()))


def _on_side(signs: Mapping[str, int], side: Side) -> dict[str, int]:
    """``signs`` without the knobs of the other side."""
    engine = {n for n in signs if n in KNOBS and "rollout_engine" in KNOBS[n].needs} - set(SERVED)
    if side is Side.TRAINING:
        split = {SPLIT: 1} if SPLIT in signs else {}
        return {n: s for n, s in signs.items() if n not in engine} | split
    strangers = {n for n in signs if n not in KNOBS}
    return {n: s for n, s in signs.items() if n in engine | strangers | set(SERVED) and n not in (SPLIT, REPLICAS)}


def _bound(name: str, sign: int, configuration: Configuration) -> Bound:
    level = need(name, configuration)
    if sign == 0 or level is None:
        return Bound(name, 0, 0.0, value_text(name, configuration))
    return Bound(name, sign, level, shown=_shown(name, configuration))


def _shown(quantity: str, configuration: Configuration) -> str:
    """The configuration's value as people read it."""
    level = need(quantity, configuration)
    return str(configuration.get(quantity, "" if level is None else f"{level:g}"))


def _sign(knob: Knob | None, pools: frozenset[str], phase: str | None) -> int | None:
    """+1, -1, 0 (must be equal), or ``None`` where the knob does not touch these pools in this phase."""
    if knob is None:
        return 0
    directions = {
        effect.direction
        for effect in knob.memory
        if str(effect.pool) in pools and (phase is None or not effect.phases or phase in effect.phases)
    }
    if not directions:
        return None
    return directions.pop() if len(directions) == 1 else 0


def generation_rows(configuration: Configuration) -> float | None:
    """Rows a rank generates at once, or ``None`` if that cannot be told."""
    rows, steps = configuration.get("micro_batch_size"), configuration.get("steps_per_generation")
    if not _is_number(steps):
        # Not set, or by the word: one generation serves a whole update.
        steps = configuration.get("gradient_accumulation_steps")
    return rows * steps if _is_number(rows) and _is_number(steps) else None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


class RegionCache:
    """Cache of regions, so that a long history is not gone through anew for each proposal; changes no result."""

    def __init__(self) -> None:
        self._regions: dict[tuple[int, str, Outcome | None], tuple[Region | None, Region | None]] = {}
        self._met: dict[str, Configuration] = {}
        self._covered: dict[Region, tuple[int, list[str]]] = {}

    def regions(self, trial: Trial, *, one_memory: bool) -> tuple[Region | None, Region | None]:
        """``region`` of a trial, and ``presumed`` of that; ``one_memory`` is always the same."""
        if trial.state is not TrialState.FAIL:
            return None, None
        key = (trial.number, trial.configuration.key, trial.outcome)
        if key not in self._regions:
            found = region(trial, one_memory=one_memory)
            self._regions[key] = found, None if found is None else presumed(found)
        return self._regions[key]

    def without(self, by_key: Mapping[str, Configuration], regions: Iterable[Region]) -> Iterator[Region]:
        """The regions that cover none of some configurations."""
        self._met.update(by_key)
        for one in regions:
            looked_at, covered = self._covered.get(one, (0, []))
            if looked_at < len(self._met):
                new = islice(self._met.items(), looked_at, None)
                covered = [*covered, *(key for key, configuration in new if covers(one, configuration))]
                self._covered[one] = len(self._met), covered
            if not any(key in by_key for key in covered):
                yield one


def regions(trials: Iterable[Trial], *, one_memory: bool, memory: RegionCache | None = None) -> tuple[Region, ...]:
    """Returns the regions ruled out by ``trials``, by trial number.

    Only failures of a fresh worker count: a warm one may have failed for what ran before. A later retry that passed
    inside a region drops it. ``one_memory``: device and host memory are the same (a CPU run).
    """
    memory = memory or RegionCache()
    ordered = sorted(trials, key=lambda t: t.number)
    passed = [t for t in ordered if retries.is_retry(t) and t.feasible]
    known, wider = [], []
    for trial in ordered:
        found, presumed = memory.regions(trial, one_memory=one_memory)
        if found is None or any(t.number > found.trial and covers(found, t.configuration) for t in passed):
            continue
        known.append(found)
        wider += [] if presumed is None else [presumed]
    fitting = {t.configuration.key: t.configuration for t in ordered if t.fits} if wider else {}
    return (*known, *memory.without(fitting, wider))
