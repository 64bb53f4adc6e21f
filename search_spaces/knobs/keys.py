"""The catalogue's knobs by framework and way of setting: what the tables of ``trainer.frameworks`` are made from."""

from __future__ import annotations

from collections.abc import Collection

from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import Reach


def keys_of(framework: str, reach: Reach) -> dict[str, str]:
    """Knob -> key, as the catalogue writes it, of every knob that ``framework`` takes by ``reach``."""
    settings = ((name, knob.frameworks.get(framework)) for name, knob in KNOBS.items())
    return {name: setting.key for name, setting in settings if setting is not None and setting.reach is reach}


def plain_keys(framework: str, translated: Collection[str], *, dotted: bool = False) -> dict[str, str]:
    """Knob -> key of every native knob whose value goes over under one key of the framework, as it is.

    A text that is no key (``bf16/fp16``, an option of a server) does not count. Hydra's ``+`` before a key is left out.

    Args:
        translated: knobs with a key of their own whose value is put in other words; left out.
        dotted: keys may have dots; else a key with dots is a place inside a mapping, and does not count.
    """
    found = {name: key.removeprefix("+") for name, key in keys_of(framework, Reach.NATIVE).items()}
    return {
        name: key
        for name, key in found.items()
        if name not in translated and all(part.isidentifier() for part in (key.split(".") if dotted else [key]))
    }


def places_in(framework: str, mapping: str) -> dict[str, tuple[str, ...]]:
    """Knob -> names on the way to its value inside the key ``mapping`` of ``framework``."""
    found = keys_of(framework, Reach.NATIVE)
    return {name: tuple(key.split(".")[1:]) for name, key in found.items() if key.split(".")[0] == mapping}
