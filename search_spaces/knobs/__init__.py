"""The knob catalogue: every knob once, with its effect, its phases, and its setting in each framework."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from types import MappingProxyType

from search_spaces.configuration import KnobValue
from search_spaces.frameworks import FACTS, SHORT, TITLES, Facts
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.knobs.batch import KNOBS as BATCH
from search_spaces.knobs.kernels import KNOBS as KERNELS
from search_spaces.knobs.megatron import KNOBS as MEGATRON
from search_spaces.knobs.model import Effect, Kind, Knob, MemoryEffect, Reach, Restart, Setting
from search_spaces.knobs.parallel import KNOBS as PARALLEL
from search_spaces.knobs.rollout import KNOBS as ROLLOUT

FRAMEWORKS = ("trl", "open_r1", "ms_swift", "verl")

_ALL = (*BATCH, *KERNELS, *ROLLOUT, *PARALLEL, *MEGATRON)

KNOBS: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in _ALL})
"""Name -> knob, in display order."""


def add_framework(name: str, title: str, facts: Facts, settings: Mapping[str, Setting]) -> None:
    """Registers a framework that another package provides. ``settings``: knob -> setting."""
    SHORT[name], TITLES[name], FACTS[name] = name, title, facts
    for knob, setting in settings.items():
        KNOBS[knob].frameworks[name] = setting


_MOVING = tuple(name for name, knob in KNOBS.items() if knob.moves_lengths)


def moving_lengths(configuration: Mapping[str, KnobValue]) -> tuple[KnobValue | None, ...]:
    """Returns the values of the knobs that change completion lengths; trials with equal values replay equal lengths."""
    return tuple(configuration.get(name) for name in _MOVING)


def defaults(framework: str, device: str = "cuda") -> Mapping[str, KnobValue]:
    """Returns the framework's default of each knob, without knobs whose default depends on others."""
    found = _DEFAULTS.get((framework, device))
    if found is None:
        settings = ((name, knob.unset_value(framework, device)) for name, knob in KNOBS.items())
        found = {name: value for name, value in settings if value is not None}
        _DEFAULTS[framework, device] = found
    return found


_DEFAULTS: dict[tuple[str, str], Mapping[str, KnobValue]] = {}


def key_of(knob: str, framework: str) -> str:
    """Returns the framework's own key of a knob; the knob's name if the framework has none."""
    setting = KNOBS[knob].frameworks.get(framework)
    return knob if setting is None else setting.key


def effect_of_change(here: Mapping[str, KnobValue], there: Mapping[str, KnobValue], framework: str) -> Effect:
    """Returns the strongest effect among the knobs that differ (``effects_of_change``)."""
    return max([Effect.SPEED, *effects_of_change(here, there, framework).values()], key=lambda e: e.rank)


def effects_of_change(
    here: Mapping[str, KnobValue], there: Mapping[str, KnobValue], framework: str
) -> dict[str, Effect]:
    """Returns knob -> effect for the knobs that differ; a knob that is not set has the framework's default.

    ``steps_per_generation`` is compared as a share of the accumulation, which decides its effect on an update. A knob
    outside the catalogue counts as LEARNING.
    """
    unset = defaults(framework)
    found = {}
    for name in sorted(set(here) | set(there)):
        before, after = there.get(name, unset.get(name)), here.get(name, unset.get(name))
        if name == "steps_per_generation":
            if _share(here, unset) != _share(there, unset):
                found[name] = KNOBS[name].effect
        elif before != after:
            found[name] = KNOBS[name].effect_between(before, after) if name in KNOBS else Effect.LEARNING
    return found


def _share(values: Mapping[str, KnobValue], unset: Mapping[str, KnobValue]) -> Fraction:
    """Returns completions per generation / completions per update."""
    steps, whole = values.get("steps_per_generation"), values.get("gradient_accumulation_steps")
    whole = unset.get("gradient_accumulation_steps", 1) if whole is None else whole
    if steps is None or steps == ACCUMULATION:
        return Fraction(1)
    return Fraction(int(steps), max(1, int(whole)))


def keys_of(framework: str, reach: Reach) -> dict[str, str]:
    """Returns knob -> key of every knob whose setting in ``framework`` has this ``reach``."""
    settings = ((name, knob.frameworks.get(framework)) for name, knob in KNOBS.items())
    return {name: setting.key for name, setting in settings if setting is not None and setting.reach is reach}


def plain_keys(framework: str, translated: Collection[str], *, dotted: bool = False) -> dict[str, str]:
    """Returns knob -> key of every native knob whose value is passed on unchanged under one key.

    Omits catalogue texts that are not single keys (``bf16/fp16``, a server's option). Removes Hydra's ``+``.
    """
    found = {name: key.removeprefix("+") for name, key in keys_of(framework, Reach.NATIVE).items()}
    return {
        name: key
        for name, key in found.items()
        if name not in translated and all(part.isidentifier() for part in (key.split(".") if dotted else [key]))
    }


def places_in(framework: str, mapping: str) -> dict[str, tuple[str, ...]]:
    """Returns knob -> keys to its value inside ``mapping``, a mapping in the configuration of ``framework``."""
    found = keys_of(framework, Reach.NATIVE)
    return {name: tuple(key.split(".")[1:]) for name, key in found.items() if key.split(".")[0] == mapping}


RESTART: Mapping[str, Restart] = {name: knob.restart for name, knob in KNOBS.items()}
"""Knob -> restart that a change of the knob needs."""


def restart_between(before: Mapping[str, KnobValue], after: Mapping[str, KnobValue], framework: str = "trl") -> Restart:
    """Returns the costliest restart among the knobs that differ; a knob outside the catalogue restarts the process.

    A knob that is not set has the framework's default; without a default it differs from every value.
    """
    unset = defaults(framework)
    changed = (n for n in {*before, *after} if before.get(n, unset.get(n)) != after.get(n, unset.get(n)))
    return max((RESTART.get(name, Restart.PROCESS) for name in changed), default=Restart.NONE)
