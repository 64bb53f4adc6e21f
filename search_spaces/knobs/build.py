"""Helper functions that build the entries of the catalogue's tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Effect, Kind, Knob, MemoryEffect, Reach, Setting

switch = partial(Knob, kind=Kind.BOOL, effect=Effect.SPEED)
number = partial(Knob, kind=Kind.INT, effect=Effect.SPEED)
share = partial(Knob, kind=Kind.FLOAT, effect=Effect.SPEED)
choice = partial(Knob, kind=Kind.CHOICE, effect=Effect.SPEED)
"""Builds a knob of this kind; ``effect`` is SPEED unless given."""

GENERATE = frozenset({"generate"})
LOGPROB = frozenset({"logprob"})
UPDATE = frozenset({"update"})
SYNC = frozenset({"sync"})
TRAIN = LOGPROB | UPDATE
FORWARD = GENERATE | TRAIN
ROLLOUT = GENERATE | SYNC
ALL = GENERATE | TRAIN | SYNC
ANY: frozenset[str] = frozenset()
"""Empty set of phases: the knob acts in any phase."""

ENGINES: tuple[KnobValue, ...] = ("vllm", "sglang")
"""Values of ``rollout_engine`` whose engine holds its own weights and cache."""
VLLM: dict[str, tuple[KnobValue, ...]] = {"rollout_engine": ("vllm",)}
ENGINE: dict[str, tuple[KnobValue, ...]] = {"rollout_engine": ENGINES}
COLOCATED: dict[str, tuple[KnobValue, ...]] = {**ENGINE, "rollout_mode": ("colocate",)}
SERVER: dict[str, tuple[KnobValue, ...]] = {**ENGINE, "rollout_mode": ("server",)}

Direction = Literal[-1, 0, 1]

ENGINE_ARGUMENT = "trl.generation.vllm_generation.LLM(%s=...)"
"""Constructor of TRL's colocated engine; a monkeypatch (seam) adds arguments to its calls."""
ENGINE_ARGUMENT_0_18 = "trl.trainer.grpo_trainer.LLM(%s=...)"
"""Constructor of the engine in TRL 0.18, which Open-R1 pins."""


def native(key: str, default: KnobValue | None = None, *, follows: str = "") -> Setting:
    """Builds the setting of a knob that the framework has as a key."""
    return Setting(key, Reach.NATIVE, default, follows)


def seam(place: str, default: KnobValue | None = None, *, follows: str = "") -> Setting:
    """Builds the setting of a knob that is set by monkeypatching ``place``, a name in the framework (a seam)."""
    return Setting(place, Reach.SEAM, default, follows)


def environment(variable: str, default: KnobValue | None = None) -> Setting:
    """Builds the setting of a knob that the environment variable ``variable`` sets."""
    return Setting(variable, Reach.ENVIRONMENT, default)


def training(direction: Direction, phases: frozenset[str]) -> tuple[MemoryEffect, ...]:
    """Returns memory effects of the training process: on the GPU, and on the host (training on a CPU, or a copy)."""
    return (MemoryEffect("device", phases, direction), MemoryEffect("host", phases, direction))


def device(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """Returns the memory effect on a GPU."""
    return (MemoryEffect("device", phases, direction),)


def host(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """Returns the memory effect on host memory."""
    return (MemoryEffect("host", phases, direction),)


def cache(direction: Direction, phases: frozenset[str] = ANY) -> tuple[MemoryEffect, ...]:
    """Returns the memory effect on the rollout engine's KV cache."""
    return (MemoryEffect("rollout_cache", phases, direction),)


OF_SWIFT, IN_SWIFT = "vllm_", "vllm_engine_kwargs."
"""Prefixes in ms-swift: of its own engine arguments, and of vLLM's."""
OF_VERL, IN_VERL = "actor_rollout_ref.rollout.", "+actor_rollout_ref.rollout.engine_kwargs.vllm."
"""Prefixes in verl: of its own engine arguments, and of vLLM's."""
ACTOR, FSDP, MODEL = "actor_rollout_ref.actor.", "actor_rollout_ref.actor.fsdp_config.", "actor_rollout_ref.model."
"""Prefixes in verl: of the trained model, of its FSDP, and of the model alone."""


def engine_settings(
    argument: str,
    default: KnobValue | None = None,
    *,
    swift: str = IN_SWIFT,
    verl: str = OF_VERL,
    seam_argument: str = "",
    own: Mapping[str, KnobValue] = MappingProxyType({}),
) -> dict[str, Setting]:
    """Returns the settings of a vLLM engine argument that TRL and Open-R1 accept only through a seam (a patch).

    Args:
        default: default of every framework that ``own`` does not name.
        swift: prefix of the argument in ms-swift; empty if ms-swift cannot set the argument.
        verl: prefix of the argument in verl.
        seam_argument: name of the argument in the seam, if not ``argument``.
        own: framework -> default, where it differs.
    """
    keys = {
        "trl": seam(ENGINE_ARGUMENT % (seam_argument or argument), own.get("trl", default)),
        "open_r1": seam(ENGINE_ARGUMENT_0_18 % (seam_argument or argument), own.get("open_r1", default)),
        "ms_swift": native(swift + argument, own.get("ms_swift", default)),
        "verl": native(verl + argument, own.get("verl", default)),
    }
    return {name: setting for name, setting in keys.items() if swift or name != "ms_swift"}


def keyed(
    default: KnobValue | None, common: str = "", own: Mapping[str, KnobValue] = MappingProxyType({}), **keys: str
) -> dict[str, Setting]:
    """Returns framework -> native setting; the key is ``common`` in TRL, Open-R1 and ms-swift unless given.

    ``default`` is the default of every framework that ``own`` does not name.
    """
    named = {**dict.fromkeys(("trl", "open_r1", "ms_swift") if common else (), common), **keys}
    return {name: native(key, own.get(name, default)) for name, key in named.items()}


def same(setting: Setting, **others: Setting) -> dict[str, Setting]:
    """Returns ``setting`` for TRL, Open-R1 and ms-swift, with exceptions by framework in ``others``."""
    return {"trl": setting, "open_r1": setting, "ms_swift": setting, **others}
