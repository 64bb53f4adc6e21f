"""Common names and figures of GPUs that a plan supports. Memory is the total that ``nvidia-smi`` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune.errors import UsageError
from autotune.machine.data_sheets import SHEETS, Hardware

GIB = 1 << 30
OWN = "--gpu-memory, --gpu-tflops and --gpu-bandwidth"


@dataclass(frozen=True)
class KnownGpu:
    """A kind of GPU with its data-sheet figures."""

    name: str
    """Name as in ``--gpu``."""
    memory: int
    """Memory in bytes."""
    compute_capability: tuple[int, int] | None
    """NVIDIA's "CUDA GPU Compute Capability"; ``None``: unknown."""
    figures: Hardware = field(hash=False)
    """Rates by the GPU's data sheet, or given by the user."""


_SHORT = {"A100-80": "a100", "V100-32": "v100"}
"""Data sheet -> common name, if it is not the sheet's own."""


def _of_sheet(sheet: Hardware) -> KnownGpu:
    name = _SHORT.get(sheet.name, sheet.name.lower().replace(" ", ""))
    return KnownGpu(name, sheet.shown, sheet.compute_capability, sheet)


_SIZED = sorted(map(_of_sheet, SHEETS.values()), key=lambda gpu: (gpu.memory, gpu.name))
GPUS: Mapping[str, KnownGpu] = {gpu.name: gpu for gpu in _SIZED if gpu.memory}
"""Known GPUs by name, ascending in memory."""

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
    """Returns a GPU by its name in any spelling. Raises ``UsageError`` if no figures are known for it."""
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
    """Returns a GPU with the user's figures, which replace known ones.

    Args:
        word: name, in any spelling.
        memory: memory in GiB, which makers call GB.
        tflops: dense BF16 or FP16, in 10^12 FLOP/s.
        bandwidth: memory bandwidth, in 10^9 bytes/s.

    Raises:
        UsageError: the name is unknown, and not all three figures are given.
    """
    known = _known(word)
    if known is None:
        if memory is None or tflops is None or bandwidth is None:
            return gpu_named(word)
        flops = _rates(tflops)
        name = word.strip()[:40] or "gpu"
        figures = Hardware(name, flops, bandwidth * 1e9, memory=round(memory * GIB), source=OWN)
        return KnownGpu(name, round(memory * GIB), None, figures)
    gpu = known if memory is None else replace(known, memory=round(memory * GIB))
    if tflops is None and bandwidth is None:
        return gpu
    sheet = known.figures
    figures = replace(
        sheet,
        flops=sheet.flops if tflops is None else _rates(tflops),
        bandwidth=sheet.bandwidth if bandwidth is None else bandwidth * 1e9,
        source=OWN,
    )
    return replace(gpu, figures=figures)


def _rates(tflops: float) -> dict[str, float]:
    """Returns FLOP/s by data type, derived from half precision: assumes half of it for TF32 and an eighth for FP32."""
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
    """Returns the GPU whose name has the same number, and the same letters in another order; empty without one."""
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
    """Returns the GPU's memory in GB, as its maker states it."""
    return round((gpu.figures.memory or gpu.memory) / 1e9)


def _names(gpu: KnownGpu) -> Iterator[str]:
    """Yields spellings of the GPU without ``_DECORATION``: its name, and its family's name with the memory."""
    family = gpu.name.split("-")[0] if gpu.name[-1].isdigit() or gpu.name == "h20-3e" else gpu.name
    others = [other for other, name in _OTHER_NAMES.items() if name == gpu.name]
    for name in (gpu.name, *others):
        yield _plain(name)
    for name in (gpu.name, family, *others):
        yield from (_plain(f"{name}{_sold_as(gpu)}{unit}") for unit in ("g", "gb"))


_NAMED: Mapping[str, KnownGpu] = {name: gpu for gpu in GPUS.values() for name in _names(gpu)}
