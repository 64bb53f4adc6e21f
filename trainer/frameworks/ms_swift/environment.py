"""Knobs that act by variables ms-swift's processes are started with, and back. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.whole_numbers import whole_number
from trainer.frameworks.common.values import KnobKeyError, parsed
from trainer.frameworks.common.variables import ALLOCATOR, HEAPS, SEGMENTS, TUNABLES
from trainer.frameworks.common.variables import variables as allocators
from trainer.frameworks.ms_swift.keys import BUCKET_VARIABLE, acting


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the environment variables that the knobs of ``configuration`` add to a training process."""
    acts, found = acting(configuration), allocators(configuration)
    if acts.get("rollout_mode") == "server" and "weight_sync_bucket_mib" in acts:
        found[BUCKET_VARIABLE] = str(acts["weight_sync_bucket_mib"])
    return found


def knobs_of(environment: Mapping[str, str]) -> tuple[dict[str, KnobValue], dict[str, str]]:
    """Returns (the knobs that ``environment`` sets, the other variables).

    Raises KnobKeyError for a bucket size that is no number.
    """
    found: dict[str, KnobValue] = {}
    rest = dict(environment)
    if rest.get(ALLOCATOR, "").replace(" ", "") == SEGMENTS:
        del rest[ALLOCATOR]
        found["expandable_segments"] = True
    for word, text in HEAPS.items():
        if rest.get(TUNABLES) == text:
            del rest[TUNABLES]
            found["host_allocator"] = word
    if BUCKET_VARIABLE in rest:
        text = rest.pop(BUCKET_VARIABLE)
        size = whole_number(text)
        if size is None:
            raise KnobKeyError(BUCKET_VARIABLE, f"expected a whole number of MiB, got {text[:60]}")
        found["weight_sync_bucket_mib"] = parsed("weight_sync_bucket_mib", BUCKET_VARIABLE, size)
    return found, rest
