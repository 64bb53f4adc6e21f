"""GPUs a plan can be made for, by the names people use. Memory is the total ``nvidia-smi`` shows.

What they can do in a second stands with the phase-time model (``autotune.proposals.times``), under ``sheet``.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from autotune.errors import UsageError

MIB = 1024 * 1024


@dataclass(frozen=True)
class KnownGpu:
    """One kind of GPU."""

    name: str
    """As ``--gpu`` takes it."""
    sheet: str
    """Its data sheet's name there."""
    memory: int
    """Bytes."""
    compute_capability: tuple[int, int]
    """NVIDIA, "CUDA GPU Compute Capability"."""


GPUS: Mapping[str, KnownGpu] = {
    gpu.name: gpu
    for gpu in (
        KnownGpu("l4", "L4", 23_034 * MIB, (8, 9)),
        KnownGpu("rtx4090", "RTX 4090", 24_564 * MIB, (8, 9)),
        KnownGpu("a100-40", "A100-40", 40_960 * MIB, (8, 0)),
        KnownGpu("l20", "L20", 46_068 * MIB, (8, 9)),
        KnownGpu("l40s", "L40S", 46_068 * MIB, (8, 9)),
        KnownGpu("h100", "H100", 81_559 * MIB, (9, 0)),
        KnownGpu("a100", "A100-80", 81_920 * MIB, (8, 0)),
        KnownGpu("h200", "H200", 143_771 * MIB, (9, 0)),
        KnownGpu("b200", "B200", 183_359 * MIB, (10, 0)),
    )
}
"""By name, ascending in memory."""

_OTHER_NAMES = {"a10080": "a100", "a10080gb": "a100", "a10040gb": "a100-40", "h10080gb": "h100", "4090": "rtx4090"}


def gpu_named(word: str) -> KnownGpu:
    """By its name in any spelling. Raises ``UsageError``: there are no figures for such a GPU here."""
    wanted = _plain(word)
    by_plain = {_plain(name): gpu for name, gpu in GPUS.items()}
    found = by_plain.get(wanted) or GPUS.get(_OTHER_NAMES.get(wanted, ""))
    if found is not None:
        return found
    near = difflib.get_close_matches(wanted[:40], by_plain, n=1, cutoff=0.5)
    hint = f"did you mean {by_plain[near[0]].name}" if near else f"known are {', '.join(GPUS)}"
    raise UsageError(f"--gpu {word[:40]!r}: there are no figures for such a GPU here; {hint}")


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "").replace("-", "").replace("_", "").replace("nvidia", "")
