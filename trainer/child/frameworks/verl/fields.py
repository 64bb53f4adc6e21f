"""The keys of the installed verl, as its own Hydra configuration has them."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Tuple

MISSING = "???"
"""What OmegaConf writes where a value has to be given."""
_WORDS: Mapping[type, str] = {bool: "bool", int: "int", float: "float", str: "str", list: "list[any]", dict: "dict"}


def describe_fields() -> Dict[str, Dict[str, Any]]:
    """Dotted key -> type word, default, whether it has none, and the part of verl it belongs to.

    A key that is null, or takes another key's value, may hold anything.
    """
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    with initialize_config_module("verl.trainer.config", version_base=None):
        whole = OmegaConf.to_container(compose("ppo_trainer"), resolve=False)
    return {key: _field(key, value) for key, value in _leaves(whole)}


def _leaves(mapping: Any, before: str = "") -> Iterator[Tuple[str, Any]]:
    for name, value in mapping.items():
        key = before + str(name)
        if isinstance(value, dict) and value:
            yield from _leaves(value, key + ".")
        else:
            yield key, value


def _field(key: str, value: Any) -> Dict[str, Any]:
    free = value is None or (isinstance(value, str) and "${" in value)
    return {
        "type": "any" if free else _WORDS[type(value)],
        "default": None if free or value == MISSING else value,
        "unset": value == MISSING,
        "group": key.partition(".")[0],
    }
