"""GPUs a plan can be made for, by the names people use. Memory is the total ``nvidia-smi`` shows.

What they can do in a second stands with the phase-time model (``autotune.proposals.times``), under ``sheet``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        KnownGpu("a40", "A40", 46_068 * MIB, (8, 6)),
        KnownGpu("l20", "L20", 46_068 * MIB, (8, 9)),
        KnownGpu("l40", "L40", 46_068 * MIB, (8, 9)),
        KnownGpu("l40s", "L40S", 46_068 * MIB, (8, 9)),
        KnownGpu("a6000", "A6000", 49_140 * MIB, (8, 6)),
        KnownGpu("rtx6000ada", "RTX 6000 Ada", 49_140 * MIB, (8, 9)),
        KnownGpu("h100", "H100", 81_559 * MIB, (9, 0)),
        KnownGpu("h100-pcie", "H100-PCIe", 81_559 * MIB, (9, 0)),
        KnownGpu("h800", "H800", 81_559 * MIB, (9, 0)),
        KnownGpu("a100", "A100-80", 81_920 * MIB, (8, 0)),
        KnownGpu("a800", "A800", 81_920 * MIB, (8, 0)),
        KnownGpu("gh200", "GH200", 97_871 * MIB, (9, 0)),
        KnownGpu("h20", "H20", 97_871 * MIB, (9, 0)),
        KnownGpu("rtxpro6000", "RTX PRO 6000", 97_887 * MIB, (12, 0)),
        KnownGpu("h20-3e", "H20-3e", 143_771 * MIB, (9, 0)),
        KnownGpu("h200", "H200", 143_771 * MIB, (9, 0)),
        KnownGpu("b200", "B200", 183_359 * MIB, (10, 0)),
        KnownGpu("mi300x", "MI300X", 196_592 * MIB, (9, 4)),
    )
}
"""By name, ascending in memory."""

_OTHER_NAMES = {
    "4090": "rtx4090", "3090": "rtx3090", "5090": "rtx5090", "rtxa6000": "a6000", "pro6000": "rtxpro6000",
    "rtx6000pro": "rtxpro6000", "a6000ada": "rtx6000ada",
}  # fmt: skip
_SIZE = re.compile(r"(?<=.)\b(\d{2,3}) ?gb?\b")
_COUNT = re.compile(r"(?P<before>\d{1,4})\s*(?:x|×|\*|卡)\s*(?=[a-z]|\d{4})|(?<=.)\s*(?:x|×|\*)\s*(?P<after>\d{1,4})$")
_DECORATION = re.compile(
    r"nvidia|geforce|amd|instinct|tesla|blackwell|(?:workstation|server) ?edition|tensor ?core|[dh]gx|sxm\d?|oam"
    r"|hbm\de?|gpus?\b"
)
_NO_GPU = re.compile(r"ascend|^910[a-z]|\b[nt]pu\b|gaudi|trainium|inferentia|\bmlu\d|^m\d (?:pro|max|ultra)")


def gpu_named(word: str) -> KnownGpu:
    """By its name in any spelling. Raises ``UsageError``: there are no figures for such a GPU here."""
    found = _known(word)
    if found is None:
        raise UsageError(f"--gpu {word[:40]!r}: {_why_not(word)}")
    return found


def _why_not(word: str) -> str:
    counted = _COUNT.search(word.lower())
    kind = _known(_COUNT.sub("", word.lower())) if counted else None
    if counted and kind is not None:
        number = counted["before"] or counted["after"]
        return f"expected one kind of GPU, without a number; write --gpu {kind.name} --gpus {number}"
    if _NO_GPU.search(word.lower()):
        return (
            f"this is an NPU or another accelerator, and there are figures for GPUs only; give {OWN} for the like of it"
        )
    size = _SIZE.search(_spaced(word))
    kind = _known(_SIZE.sub("", _spaced(word))) if size else None
    if size and kind is not None:
        own = f"--gpu {kind.name} --gpu-memory {size[1]}"
        return f"{kind.name} has {_sold_as(kind)} GB; for one that differs in nothing else give {own}"
    near = _misspelt(_plain(word))
    hint = f"did you mean {near}" if near else f"give {OWN}; known are {', '.join(GPUS)}"
    return f"there are no figures for such a GPU here; {hint}"


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
    found = _NAMED.get(wanted) or _NAMED.get(wanted.replace("pcie", ""))
    # A card of Hopper's for a slot computes less than the module of the same name; those of Ampere are as fast.
    if found is not None and "pcie" in wanted and "pcie" not in found.name and found.compute_capability == (9, 0):
        return None
    return found


def _misspelt(wanted: str) -> str:
    """The GPU of the same number and the same letters in another order; another number or letter is another GPU."""
    for name in GPUS:
        if _letters_and_number(_plain(name)) == _letters_and_number(wanted):
            return name
    return ""


def _letters_and_number(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(set(re.sub(r"\d", "", name)))), tuple(re.findall(r"\d+", name))


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", _DECORATION.sub("", _spaced(name)))


def _spaced(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.lower()).strip()


def _sold_as(gpu: KnownGpu) -> int:
    """GB of its memory, as its maker counts them."""
    return round((SHEETS[gpu.sheet].memory or gpu.memory) / 1e9)


def _names(gpu: KnownGpu) -> Iterator[str]:
    """The spellings it has without ``_DECORATION``: its name, and that of its kind with the memory."""
    family = gpu.name.split("-")[0] if gpu.name[-1].isdigit() or gpu.name == "h20-3e" else gpu.name
    others = [other for other, name in _OTHER_NAMES.items() if name == gpu.name]
    for name in (gpu.name, *others):
        yield _plain(name)
    for name in (gpu.name, family, *others):
        yield from (_plain(f"{name}{_sold_as(gpu)}{unit}") for unit in ("g", "gb"))


_NAMED: Mapping[str, KnownGpu] = {name: gpu for gpu in GPUS.values() for name in _names(gpu)}
