"""GPUs a plan can be made for, by the names people use. Memory is the total ``nvidia-smi`` shows.

What they can do in a second stands with the phase-time model (``autotune.proposals.times``), under ``sheet``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.proposals.times.machine import SHEETS, Hardware

MIB = 1024 * 1024
GIB = 1024 * MIB
OWN = "--gpu-memory, --gpu-tflops and --gpu-bandwidth"


@dataclass(frozen=True)
class KnownGpu:
    """One kind of GPU."""

    name: str
    """As ``--gpu`` takes it."""
    sheet: str
    """Its data sheet's name there; empty where there is none."""
    memory: int
    """Bytes."""
    compute_capability: tuple[int, int] | None
    """NVIDIA, "CUDA GPU Compute Capability"; of AMD's what PyTorch answers. ``None``: not known."""
    figures: Hardware | None = None
    """What it does in a second, where somebody said so instead of the sheet."""


GPUS: Mapping[str, KnownGpu] = {
    gpu.name: gpu
    for gpu in (
        KnownGpu("t4", "T4", 15_360 * MIB, (7, 5)),
        KnownGpu("v100-16", "V100-16", 16_384 * MIB, (7, 0)),
        KnownGpu("a10", "A10", 23_028 * MIB, (8, 6)),
        KnownGpu("l4", "L4", 23_034 * MIB, (8, 9)),
        KnownGpu("rtx4090", "RTX 4090", 24_564 * MIB, (8, 9)),
        KnownGpu("a30", "A30", 24_576 * MIB, (8, 0)),
        KnownGpu("rtx3090", "RTX 3090", 24_576 * MIB, (8, 6)),
        KnownGpu("rtx5090", "RTX 5090", 32_607 * MIB, (12, 0)),
        KnownGpu("v100", "V100-32", 32_768 * MIB, (7, 0)),
        KnownGpu("a100-40", "A100-40", 40_960 * MIB, (8, 0)),
        KnownGpu("l20", "L20", 46_068 * MIB, (8, 9)),
        KnownGpu("l40", "L40", 46_068 * MIB, (8, 9)),
        KnownGpu("l40s", "L40S", 46_068 * MIB, (8, 9)),
        KnownGpu("a6000", "A6000", 49_140 * MIB, (8, 6)),
        KnownGpu("h100", "H100", 81_559 * MIB, (9, 0)),
        KnownGpu("h800", "H800", 81_559 * MIB, (9, 0)),
        KnownGpu("a100", "A100-80", 81_920 * MIB, (8, 0)),
        KnownGpu("a800", "A800", 81_920 * MIB, (8, 0)),
        KnownGpu("h20", "H20", 97_871 * MIB, (9, 0)),
        KnownGpu("rtxpro6000", "RTX PRO 6000", 97_887 * MIB, (12, 0)),
        KnownGpu("h200", "H200", 143_771 * MIB, (9, 0)),
        KnownGpu("b200", "B200", 183_359 * MIB, (10, 0)),
        KnownGpu("mi300x", "MI300X", 196_592 * MIB, (9, 4)),
    )
}
"""By name, ascending in memory."""

_OTHER_NAMES = {
    "a10080": "a100", "a10080gb": "a100", "a10040gb": "a100-40", "a80080gb": "a800", "h10080gb": "h100",
    "h80080gb": "h800", "h2096gb": "h20", "v10032gb": "v100", "v10016gb": "v100-16", "4090": "rtx4090",
    "3090": "rtx3090", "5090": "rtx5090", "rtxa6000": "a6000", "pro6000": "rtxpro6000", "rtx6000pro": "rtxpro6000",
    "rtxpro6000blackwell": "rtxpro6000",
}  # fmt: skip


def gpu_named(word: str) -> KnownGpu:
    """By its name in any spelling. Raises ``UsageError``: there are no figures for such a GPU here."""
    found = _known(word)
    if found is None:
        near = _misspelt(_plain(word))
        hint = f"did you mean {near}" if near else f"give {OWN}; known are {', '.join(GPUS)}"
        raise UsageError(f"--gpu {word[:40]!r}: there are no figures for such a GPU here; {hint}")
    return found


def gpu_of(
    word: str, memory: float | None = None, tflops: float | None = None, bandwidth: float | None = None
) -> KnownGpu:
    """A GPU with figures of a user's own in the place of those known here, or where none are.

    Args:
        word: its name, in any spelling.
        memory: GiB, which makers call GB.
        tflops: dense BF16 or FP16, 10^12 in a second.
        bandwidth: of its memory, 10^9 bytes in a second.

    Raises:
        UsageError: the name is not known, and not all three are given.
    """
    known = _known(word)
    if known is None:
        if memory is None or tflops is None or bandwidth is None:
            return gpu_named(word)
        flops = _rates(tflops)
        name = word.strip()[:40] or "gpu"
        figures = Hardware(name, flops, bandwidth * 1e9, memory=round(memory * GIB), source=OWN)
        return KnownGpu(name, "", round(memory * GIB), None, figures)
    gpu = known if memory is None else replace(known, memory=round(memory * GIB))
    if tflops is None and bandwidth is None:
        return gpu
    sheet = SHEETS[known.sheet]
    figures = replace(
        sheet,
        flops=sheet.flops if tflops is None else _rates(tflops),
        bandwidth=sheet.bandwidth if bandwidth is None else bandwidth * 1e9,
        source=OWN,
    )
    return replace(gpu, figures=figures)


def _rates(tflops: float) -> dict[str, float]:
    """FLOP/s by type of a GPU of which only half precision is told: TF32 half, FP32 an eighth of it, presumed."""
    half = tflops * 1e12
    return {"bf16": half, "fp16": half, "tf32": half / 2, "fp32": half / 8}


def _known(word: str) -> KnownGpu | None:
    wanted = _plain(word)
    by_plain = {_plain(name): gpu for name, gpu in GPUS.items()}
    return by_plain.get(wanted) or GPUS.get(_OTHER_NAMES.get(wanted, ""))


def _misspelt(wanted: str) -> str:
    """The GPU of the same number and the same letters in another order; another number or letter is another GPU."""
    for name in GPUS:
        if _letters_and_number(_plain(name)) == _letters_and_number(wanted):
            return name
    return ""


def _letters_and_number(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(set(re.sub(r"\d", "", name)))), tuple(re.findall(r"\d+", name))


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_-]", "", name.lower())
    return re.sub("nvidia|geforce|amd|instinct|tesla", "", plain)
