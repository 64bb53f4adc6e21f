"""Short words the catalogue's tables are written in."""

from __future__ import annotations

from functools import partial
from typing import Literal

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Effect, Kind, Knob, MemoryEffect, Reach, Setting

switch = partial(Knob, kind=Kind.BOOL, effect=Effect.SPEED)
number = partial(Knob, kind=Kind.INT, effect=Effect.SPEED)
share = partial(Knob, kind=Kind.FLOAT, effect=Effect.SPEED)
choice = partial(Knob, kind=Kind.CHOICE, effect=Effect.SPEED)
"""A knob of that kind; a stronger effect than on speed is said."""

GENERATE = frozenset({"generate"})
LOGPROB = frozenset({"logprob"})
UPDATE = frozenset({"update"})
SYNC = frozenset({"sync"})
TRAIN = LOGPROB | UPDATE
FORWARD = GENERATE | TRAIN
ROLLOUT = GENERATE | SYNC
ALL = GENERATE | TRAIN | SYNC
ANY: frozenset[str] = frozenset()
"""Any phase."""

ENGINES: tuple[KnobValue, ...] = ("vllm", "sglang")
"""Values of ``rollout_engine`` that hold weights and a cache of their own."""
VLLM: dict[str, tuple[KnobValue, ...]] = {"rollout_engine": ("vllm",)}
ENGINE: dict[str, tuple[KnobValue, ...]] = {"rollout_engine": ENGINES}
COLOCATED: dict[str, tuple[KnobValue, ...]] = {**ENGINE, "rollout_mode": ("colocate",)}
SERVER: dict[str, tuple[KnobValue, ...]] = {**ENGINE, "rollout_mode": ("server",)}

Direction = Literal[-1, 0, 1]

ENGINE_ARGUMENT = "trl.generation.vllm_generation.LLM(%s=...)"
"""The name TRL's colocated mode builds its engine by; replacing it adds arguments."""
ENGINE_ARGUMENT_0_18 = "trl.trainer.grpo_trainer.LLM(%s=...)"
"""The same in TRL 0.18, which Open-R1 pins."""


def native(key: str, default: KnobValue | None = None, *, follows: str = "") -> Setting:
    """The framework has a setting."""
    return Setting(key, Reach.NATIVE, default, follows)


def seam(place: str, default: KnobValue | None = None, *, follows: str = "") -> Setting:
    """``place`` is replaced from outside."""
    return Setting(place, Reach.SEAM, default, follows)


def environment(variable: str, default: KnobValue | None = None) -> Setting:
    """The process is started with ``variable``."""
    return Setting(variable, Reach.ENVIRONMENT, default)


def training(direction: Direction, phases: frozenset[str]) -> tuple[MemoryEffect, ...]:
    """Memory of the training process: the device's, and the host's where that is the device or holds a copy."""
    return (MemoryEffect("device", phases, direction), MemoryEffect("host", phases, direction))


def device(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """Memory of a GPU."""
    return (MemoryEffect("device", phases, direction),)


def host(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """Memory of the machine."""
    return (MemoryEffect("host", phases, direction),)


def cache(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """The rollout engine's KV cache."""
    return (MemoryEffect("rollout_cache", phases, direction),)


def engine_settings(
    argument: str, trl: KnobValue | None, swift: Setting | None, verl: Setting, *, open_r1: Setting | None = None
) -> dict[str, Setting]:
    """A vLLM engine argument that TRL and Open-R1 only take through a seam; ``None``: ms-swift has no way to it."""
    found = {
        "trl": seam(ENGINE_ARGUMENT % argument, trl),
        "open_r1": open_r1 or seam(ENGINE_ARGUMENT_0_18 % argument, trl),
    }
    return {**found, **({} if swift is None else {"ms_swift": swift}), "verl": verl}


def same(setting: Setting, **others: Setting) -> dict[str, Setting]:
    """One setting for TRL, Open-R1 and ms-swift, with exceptions by framework."""
    return {"trl": setting, "open_r1": setting, "ms_swift": setting, **others}
