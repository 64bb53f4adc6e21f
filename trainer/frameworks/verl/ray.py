"""Number of CPUs of a trial's Ray: the number that verl reserves. Pure.

Ray counts CPUs and does not bind processes to them. TransferQueue's storage units and its controller reserve one each
(``transfer_queue/storage/simple_storage.py``, ``transfer_queue/controller.py``), the pool of workers three with each
GPU (``verl/single_controller/ray/base.py``, ``max_colocate_count``). If Ray has fewer, verl waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADDRESS = "ray_kwargs.ray_init.address"
CPUS = "ray_kwargs.ray_init.num_cpus"
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
VERLS_UNITS = 8
CONTROLLER = 1
OF_A_GPU = 3
SPARE = 1
"""CPUs for a starting actor that later holds none; without it the actor would look as if it waited for ever."""

PRIVATE: Mapping[str, Any] = {ADDRESS: "local", "ray_kwargs.ray_init.include_dashboard": False}
"""Settings for a Ray of the trial's own, at free ports (``verl/trainer/main_ppo.py`` passes them to ``ray.init``); the
process that starts the trial sets its folder."""


def held(keys: Mapping[str, Any], gpus: int) -> int:
    """Returns the CPUs, in Ray's count, that verl holds on one machine with ``gpus``.

    ``keys`` are the user's own, which may set another number of storage units.
    """
    units = keys.get(UNITS, VERLS_UNITS)
    return (units if _is_count(units) else VERLS_UNITS) + CONTROLLER + OF_A_GPU * gpus


def cpus(keys: Mapping[str, Any], gpus: int, cores: int) -> dict[str, Any]:
    """Returns the number of CPUs to give Ray if its own count is too small; else empty.

    Args:
        keys: the user's own, which may set a number.
        cores: cores of the machine; 0 if unknown.
    """
    own, needed = keys.get(CPUS), held(keys, gpus) + SPARE
    there = int(own) if own is not None and _is_count(own) else cores
    return {CPUS: needed} if 0 < there < needed else {}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
