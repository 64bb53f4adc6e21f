"""The keys of verl's own configuration files: of 0.9.1, for FSDP and for Megatron, and those of earlier versions.

``fields.json`` was made by composing ``ppo_trainer`` and ``ppo_megatron_trainer`` of ``verl/trainer/config`` by Hydra.
A key that a file sets to nothing (``null``, ``{}``) may hold others, which are not in it. Earlier are 0.2.0, 0.3.0,
0.4.1, 0.5.0, 0.6.1, 0.7.0, 0.8.0 and 0.9.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

_RECORDED = json.loads(Path(__file__).with_name("fields.json").read_text("utf-8"))


def _whole(table: Mapping[str, str]) -> Iterator[str]:
    """Whole names of a table from place to names."""
    for place, names in table.items():
        yield from (name if place == "." else f"{place}.{name}" for name in names.split())


def _with_alike(keys: frozenset[str]) -> frozenset[str]:
    alike: Mapping[str, str] = _RECORDED["alike"]
    copies = (
        other + key.removeprefix(place) for other, place in alike.items() for key in keys if key.startswith(f"{place}.")
    )
    return keys.union(copies)


KEYS = _with_alike(frozenset(_whole(_RECORDED["keys"])))
"""Those of 0.9.1, by their whole names."""
EARLIER = frozenset(_whole(_RECORDED["earlier"]))
"""Those that only earlier versions have."""
