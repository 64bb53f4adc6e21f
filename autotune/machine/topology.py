"""Decides which GPUs of a machine exchange data fast, from how they are joined. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.machine.nvml import NVLINK, Gpu


def nvlink_groups(gpus: Sequence[Gpu]) -> list[list[int]]:
    """Returns the positions of ``gpus`` in groups of which NVLink joins every two; empty if no paths are reported."""
    if len(gpus) < 2 or not all(gpu.paths for gpu in gpus):
        return []
    groups: list[list[int]] = []
    for place, gpu in enumerate(gpus):
        paths = dict(gpu.paths)
        group = next((g for g in groups if all(paths.get(gpus[other].index) == NVLINK for other in g)), None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return groups


def slow_paths(gpus: Sequence[Gpu]) -> str | None:
    """Names GPUs that exchange data slowly; ``None`` if NVLink joins all of them or no paths are reported."""
    groups = [[gpus[place] for place in group] for group in nvlink_groups(gpus)]
    if len(groups) < 2:
        return None
    one, other = groups[0][0], groups[1][0]
    text = f"GPUs {one.index} and {other.index} are not joined by NVLink (they meet at {dict(one.paths)[other.index]})"
    joined = [", ".join(str(gpu.index) for gpu in group) for group in groups if len(group) > 1]
    if joined:
        text += f"; NVLink joins {' and '.join(f'GPUs {each}' for each in joined)}"
    return f"{text}: ZeRO-3 and tensor parallelism over GPUs that are not joined are slow"
