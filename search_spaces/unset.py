"""The word ``unset`` among a knob's values: a candidate that leaves the knob to the framework. Pure.

Where the framework has a default that is known, leaving it unset and setting that default are one candidate. Where it
has no setting for the knob at all, every candidate leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.batch import BATCH_KNOBS
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Knob, defaults

UNSET = "unset"
"""Text of the value in a space; a configuration never holds it."""

_PLACE = frozenset({"rollout_engine", "rollout_mode", "rollout_gpus", "training_gpus", "rollout_data_parallel_size"})
"""Knobs that decide which engine generates, on which GPUs, and so the batch."""


def must_be_known(knob: Knob) -> bool:
    """Tells whether a candidate must set the knob: batch knobs, engine placement, and knobs with a followed default."""
    following = any(setting.follows for setting in knob.frameworks.values())
    return knob.derived or following or knob.name in _PLACE or knob.name in BATCH_KNOBS


def resolved(
    values: Mapping[str, tuple[KnobValue, ...]], framework: str, device: str = "cuda"
) -> dict[str, tuple[KnobValue, ...]]:
    """Returns ``values`` with ``UNSET`` replaced by the framework's default; ``UNSET`` stays if there is none.

    Knobs that may be unset and have no setting in the framework are dropped.
    """
    own = defaults(framework, device)
    found: dict[str, tuple[KnobValue, ...]] = {}
    for name, listed in values.items():
        if UNSET not in listed:
            found[name] = listed
        elif framework in KNOBS[name].frameworks:
            usual = own.get(name, UNSET)
            found[name] = tuple(dict.fromkeys(usual if value == UNSET else value for value in listed))
    return found
