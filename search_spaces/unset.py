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
"""As it stands in a space; a configuration never holds it."""

_PLACE = frozenset({"rollout_engine", "rollout_mode", "rollout_gpus", "training_gpus", "rollout_data_parallel_size"})
"""Knobs that say what generates and on which GPUs, which the batch follows from."""


def must_be_known(knob: Knob) -> bool:
    """Whether a candidate cannot leave it out: the batch, what generates where, and what follows another knob."""
    following = any(setting.follows for setting in knob.frameworks.values())
    return knob.derived or following or knob.name in _PLACE or knob.name in BATCH_KNOBS


def resolved(
    values: Mapping[str, tuple[KnobValue, ...]], framework: str, device: str = "cuda"
) -> dict[str, tuple[KnobValue, ...]]:
    """``values`` with what ``UNSET`` comes to in ``framework``: its default; itself where there is none.

    A knob that may be left unset and that the framework has no setting for is not among them.
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
