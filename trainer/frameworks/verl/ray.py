"""Settings of a trial's Ray: CPUs that verl reserves, and knobs' variables, which Ray passes to workers. Pure.

Ray counts CPUs and does not bind processes to them. TransferQueue's storage units and its controller reserve one CPU
each (``transfer_queue/storage/simple_storage.py``, ``transfer_queue/controller.py``), the worker pool three for each
GPU (``verl/single_controller/ray/base.py``, ``max_colocate_count``). If Ray has too few, verl waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.values import ALLOCATOR, HEAPS, SEGMENTS, TUNABLES
from trainer.frameworks.verl.keys import acting

ADDRESS = "ray_kwargs.ray_init.address"
CPUS = "ray_kwargs.ray_init.num_cpus"
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
VERLS_UNITS = 8
CONTROLLER = 1
OF_A_GPU = 3
SPARE = 1
"""Spare CPUs for an actor that holds a CPU only while it starts; without them it would seem to wait for ever."""

PRIVATE: Mapping[str, Any] = {ADDRESS: "local", "ray_kwargs.ray_init.include_dashboard": False}
"""Settings for a Ray of the trial's own, at free ports (``verl/trainer/main_ppo.py`` passes them to ``ray.init``); the
process that starts the trial sets Ray's folder."""


def cpus_of(keys: Mapping[str, Any], gpus: int) -> int:
    """Returns the number of CPUs, as Ray counts, that verl reserves on one machine with ``gpus``.

    ``keys`` are the user's own, which may set another number of storage units.
    """
    units = keys.get(UNITS, VERLS_UNITS)
    return (units if _is_count(units) else VERLS_UNITS) + CONTROLLER + OF_A_GPU * gpus


def cpus(keys: Mapping[str, Any], gpus: int, cores: int) -> dict[str, Any]:
    """Returns the setting for Ray's number of CPUs, if its own count is too small; else empty.

    Args:
        cores: cores of the machine; 0 if unknown.
    """
    own, needed = keys.get(CPUS), cpus_of(keys, gpus) + SPARE
    there = int(own) if own is not None and _is_count(own) else cores
    return {CPUS: needed} if 0 < there < needed else {}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


ENVIRONMENT = "env"
"""Key of the passthrough that holds variables."""
LOG_VARIABLE = "VERL_FILE_LOGGER_PATH"
"""Environment variable with the path of verl's log file (``verl/utils/tracking.py``)."""
_SEGMENTS: Mapping[str, bool] = {SEGMENTS: True, "expandable_segments:False": False}
_HEAPS: Mapping[str, str] = {text: word for word, text in HEAPS.items()}


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the environment variables that the knobs of ``configuration`` add to a training process."""
    acts = acting(configuration)
    segments = [text for text, value in _SEGMENTS.items() if acts.get("expandable_segments") is value]
    heaps = [text for text, value in _HEAPS.items() if acts.get("host_allocator") == value]
    return {name: found[0] for name, found in ((ALLOCATOR, segments), (TUNABLES, heaps)) if found}


def knobs_of(environment: Mapping[str, str]) -> dict[str, KnobValue]:
    """Returns the knobs that a script's variables set; a missing variable counts as unset."""
    found: dict[str, KnobValue] = {}
    segments = _SEGMENTS.get(environment.get(ALLOCATOR, "expandable_segments:False"))
    if segments is not None:
        found["expandable_segments"] = segments
    if TUNABLES not in environment or environment[TUNABLES] in _HEAPS:
        found["host_allocator"] = _HEAPS.get(environment.get(TUNABLES, ""), "default")
    return found


def other_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are neither knobs nor the log's path, which the run sets itself."""
    known = {ALLOCATOR: _SEGMENTS, TUNABLES: _HEAPS}
    return {
        name: value for name, value in environment.items() if name != LOG_VARIABLE and value not in known.get(name, {})
    }
