"""Which GPUs train and which a rollout server has, and the server's replicas. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from search_spaces.configuration import KnobValue

HOST = "127.0.0.1"
"""A rollout server is reached from this machine alone: whoever reaches it can have it run what they like."""


def split(gpus: Sequence[str], configuration: Mapping[str, KnobValue]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(GPUs that train, GPUs of the server): the last ``rollout_gpus`` of ``gpus`` are the server's.

    Raises:
        ValueError: that leaves one side without any.
    """
    wanted = int(configuration.get("rollout_gpus", 0))
    if not 1 <= wanted < len(gpus):
        raise ValueError(
            f"rollout_gpus {wanted} of {len(gpus)} GPUs: a rollout server needs at least 1, and training keeps 1"
        )
    return tuple(gpus[:-wanted]), tuple(gpus[-wanted:])


def replicas(configuration: Mapping[str, KnobValue]) -> tuple[int, int]:
    """(GPUs of one replica, replicas); replicas that are not set use all of ``rollout_gpus``.

    Raises:
        ValueError: together they are not ``rollout_gpus``.
    """
    size, given = int(configuration.get("tensor_parallel_size", 1)), int(configuration.get("rollout_gpus", 0))
    count = int(configuration.get("rollout_data_parallel_size", max(1, given // size)))
    if size * count != given:
        raise ValueError(f"tensor_parallel_size {size} × {count} replicas = {size * count} is not rollout_gpus {given}")
    return size, count
