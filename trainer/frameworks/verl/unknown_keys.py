"""Detects mistakes among keys that verl's own configuration files do not have. Pure.

Hydra refuses such a key unless it is written ``+key`` or ``++key``: a plugin, or another version of verl, may have it.
``fields.json`` has the keys of 0.9.1, composed from ``ppo_trainer`` and ``ppo_megatron_trainer`` of
``verl/trainer/config`` by Hydra (a key that is set to nothing, ``null`` or ``{}``, may hold others), and keys that only
0.2.0, 0.3.0, 0.4.1, 0.5.0, 0.6.1, 0.7.0, 0.8.0 or 0.9.0 had.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import problem
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.verl.key_handling import handling_of
from trainer.frameworks.verl.key_tables import MIXED, NOT_IN_VERLS_FILES

_FREE = re.compile(r"(?:^|\.)(?:override_\w+|\w*_kwargs|hydra|env_vars)\.")
"""Matches mappings in which any key may be added."""
_CLOSE, _SURE = 0.75, 0.85
"""Similarity of two names (``difflib``) above which a key counts as misspelt; an added key needs the second."""
_VERSION = "0.9.1"
_RECORDED = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))


def _whole(table: Mapping[str, str]) -> Iterator[str]:
    """Yields the whole names in a table from mapping to names."""
    for place, names in table.items():
        yield from (name if place == "." else f"{place}.{name}" for name in names.split())


def _with_alike(keys: frozenset[str]) -> frozenset[str]:
    alike: Mapping[str, str] = _RECORDED["alike"]
    copies = (
        other + key.removeprefix(place) for other, place in alike.items() for key in keys if key.startswith(f"{place}.")
    )
    return keys.union(copies)


KEYS = _with_alike(frozenset(_whole(_RECORDED["keys"])))
"""Keys of 0.9.1, by their whole names."""
EARLIER = frozenset(_whole(_RECORDED["earlier"]))
"""Keys that only earlier versions have."""


def is_known(key: str) -> bool:
    """Tells whether verl 0.9.1 has the key, or a mapping that may hold it."""
    if key in KEYS or key in _places() or key in NOT_IN_VERLS_FILES or key.startswith(MIXED):
        return True
    inside = _FREE.search(key) is not None or any(above in KEYS for above in _above(key))
    return inside or "@" in key or handling_of(key) is not KeyHandling.WORKLOAD


def check_known(key: str, added: Set[str], name: str, line: int) -> None:
    """Raises ``ConfigError`` for an unknown key that is similar to one of verl's keys, and names that key.

    ``added`` are keys, or their mappings, written with ``+``.
    """
    meant = "" if _is_added(key, added) or key in EARLIER or is_known(key) else _closest(key, _CLOSE)
    if meant:
        text = f"verl has no key {show(key)}; did you mean {meant} (write ++{key} if yours has it)"
        raise problem(name, line, text)


def notes_of(lines: Mapping[str, int], added: Set[str], name: str) -> Iterator[str]:
    """Yields notes on the keys in ``lines`` that verl 0.9.1 does not have."""
    unknown = [key for key in lines if not is_known(key)]
    earlier = [key for key in unknown if key in EARLIER]
    if earlier:
        text = f"verl {_VERSION} no longer has {', '.join(earlier)}; what a trial is given there changes nothing"
        yield str(problem(name, lines[earlier[0]], text))
    for key in unknown:
        meant = _closest(key, _SURE) if _is_added(key, added) else ""
        if key not in EARLIER and (meant or not _is_added(key, added)):
            advice = f"did you mean {meant}" if meant else "a trial is given it all the same"
            yield str(problem(name, lines[key], f"verl {_VERSION} has no key {show(key)}; {advice}"))


def _is_added(key: str, added: Set[str]) -> bool:
    return key in added or any(above in added for above in _above(key))


@cache
def _places() -> frozenset[str]:
    """Returns all mappings that contain verl's keys."""
    return frozenset(above for key in KEYS for above in _above(key))


def _above(key: str) -> Iterator[str]:
    while "." in key:
        key = key.rpartition(".")[0]
        yield key


def _closest(key: str, likeness: float) -> str:
    """Returns the most similar key that differs in one part; else the only key with its last name in its section."""
    parts = key.split(".")
    found = [(_likeness(parts, known.split(".")), known) for known in KEYS if known.count(".") == len(parts) - 1]
    best = max(found, default=(0.0, ""))
    if best[0] >= likeness:
        return best[1]
    named = [known for known in KEYS if known.startswith(f"{parts[0]}.") and known.endswith(f".{parts[-1]}")]
    return named[0] if len(named) == 1 else ""


def _likeness(parts: list[str], other: list[str]) -> float:
    differing = [(a[:80], b) for a, b in zip(parts, other, strict=True) if a != b]
    return SequenceMatcher(None, *differing[0]).ratio() if len(differing) == 1 else 0.0
