"""Converts values of a framework's keys to values of knobs, and knobs to environment variables. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from search_spaces.batch import MODEL_PARALLEL, model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import show
from trainer.child.contract import Protocol, RewardSpec


class KnobKeyError(ValueError):
    """A key that cannot become a knob's value, and the reason; the text has no capital and no full stop."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key, self.text = key, text


def count_of(key: str, value: Any, most: float = math.inf) -> int:
    """Returns ``value`` if it is an integer from 1 to ``most``. Raises KnobKeyError for any other value."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise KnobKeyError(key, f"expected a whole number of at least 1, got {show(value)}")
    return value


def parsed(knob: str, key: str, value: Any) -> KnobValue:
    """Converts ``value`` to the type of ``knob``. Raises KnobKeyError with ``key`` and the expected value."""
    try:
        return KNOBS[knob].parse(value)
    except SpaceError as error:
        raise KnobKeyError(key, str(error)) from None


def uneven(knobs: Mapping[str, KnobValue], keys: Mapping[str, str], gpus: int) -> KnobKeyError:
    """Builds the error on Megatron's parallel sizes that do not divide ``gpus``; ``keys``: knob -> key."""
    said = [name for name in (*MODEL_PARALLEL[1:], MODEL_PARALLEL[0]) if knobs.get(name, 1) != 1]
    sizes = " × ".join(f"{keys[name].rpartition('.')[2]} {knobs[name]}" for name in said)
    of = f" ({sizes})" if len(said) > 1 else ""
    text = f"{model_parallel(knobs)} GPUs{of} cannot hold a model evenly on {gpus} GPUs"
    return KnobKeyError(keys[said[0]], text)


ARGUMENT = "speculative_config"
"""Name of vLLM's argument for speculative decoding."""
_METHOD, _TOKENS, _LONGEST, _SHORTEST = "method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"
SPECULATIVE: Mapping[str, str] = {
    "speculative_decoding": _METHOD,
    "speculative_tokens": _TOKENS,
    "speculative_lookup": _LONGEST,
}
"""Knob -> key in ``speculative_config``."""


def speculative_config(acts: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns vLLM's argument ``speculative_config`` for the knobs; empty without speculative decoding."""
    guesses = acts.get("speculative_decoding", "none") != "none"
    return {key: acts[knob] for knob, key in SPECULATIVE.items() if knob in acts} if guesses else {}


def speculative_knobs(value: Any, key: str) -> dict[str, KnobValue]:
    """Returns the knobs of ``speculative_config``; empty for a method without a knob, which stays the user's own.

    Raises KnobKeyError for a number that no knob has. ``value`` is a mapping or its JSON.
    """
    settings = _mapping(value)
    last = settings.get(_LONGEST, settings.get(_SHORTEST))
    whole = set(settings) <= {_METHOD, _TOKENS, _LONGEST, _SHORTEST} and settings.get(_SHORTEST, last) == last
    if not whole or settings.get(_METHOD) != "ngram" or settings.get(_TOKENS) is None:
        return {}
    found: dict[str, KnobValue] = {"speculative_decoding": "ngram"}
    found["speculative_tokens"] = parsed("speculative_tokens", f"{key}.{_TOKENS}", settings[_TOKENS])
    if last is not None:
        found["speculative_lookup"] = parsed("speculative_lookup", f"{key}.{_LONGEST}", last)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


ALLOCATOR, TUNABLES = "PYTORCH_CUDA_ALLOC_CONF", "GLIBC_TUNABLES"
SEGMENTS = "expandable_segments:True"
_KEEP = (
    "glibc.malloc.arena_max=1",
    "glibc.malloc.mmap_max=0",
    "glibc.malloc.top_pad=268435456",
    "glibc.malloc.trim_threshold=1099511627776",
)
"""Makes glibc keep freed memory in one heap (sizes in bytes): by default a tensor's pages are unmapped at once, and the
next tensor's are mapped and cleared again (glibc manual, "Memory Allocation Tunables")."""
_HUGE = "glibc.malloc.hugetlb=1"
"""Makes the heap use transparent huge pages, which the kernel clears 2 MiB at a time (glibc 2.35)."""
HEAPS: Mapping[str, str] = {"keep": ":".join(_KEEP), "keep_huge_pages": ":".join((*_KEEP, _HUGE))}
"""Value of ``host_allocator`` -> ``TUNABLES``; any other value sets none."""


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the additional environment variables of a process that trains with ``configuration``."""
    found: dict[str, str] = {}
    if configuration.get("expandable_segments") is True:
        found[ALLOCATOR] = SEGMENTS
    heap = HEAPS.get(str(configuration.get("host_allocator")))
    return found if heap is None else {**found, TUNABLES: heap}


class TrialArguments(TypedDict):
    """Fields of ``TrialSpec`` that do not depend on the framework; meaning and defaults are in ``TrialSpec``."""

    trial: str
    model: str
    prompts: str
    rewards: tuple[RewardSpec, ...]
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    protocol: Protocol
    device: NotRequired[str]
    world_size: NotRequired[int]
    seed: NotRequired[int]
    memory_limit: NotRequired[int | None]
    meter: NotRequired[bool]
    revision: NotRequired[str]


def sizes(trial: TrialArguments) -> dict[str, Any]:
    """Returns the arguments of a framework's ``settings`` besides the configuration; ``longest`` is in tokens."""
    return {
        "rows_per_update": trial["rows_per_update"],
        "world_size": trial.get("world_size", 1),
        "device": trial.get("device", "cpu"),
        "longest": trial["max_prompt_length"] + trial["max_completion_length"],
    }


def following(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> int | None:
    """Returns the accumulation that keeps an update's completions; ``None`` if it is set, or no micro-batch is set.

    ``ranks`` is the number of data-parallel training processes.
    """
    micro = configuration.get("micro_batch_size")
    if micro is None or "gradient_accumulation_steps" in configuration:
        return None
    return max(1, rows_per_update // (int(micro) * ranks))
