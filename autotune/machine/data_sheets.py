"""Speeds of devices as plain numbers: measured by a probe, from a data sheet, or assumed.

The probe is the child's ``probe_speed``. It measures one large matrix product, one large copy and a chain of tiny
kernels, so its figures are below a data sheet's. ``Hardware.rate`` and ``bytes_s`` make the two comparable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.configuration import Resources

KINDS = ("fp32", "tf32", "bf16", "fp16", "fp8")
"""Number formats of matrix products, in the order of a data sheet's FLOP/s."""
REACHED = 0.75
"""Share of a data sheet's FLOP/s or bytes/s that a large product or copy reaches; scales measured figures up."""
KERNEL_S = 4e-6
"""Seconds in which eager PyTorch launches one kernel, if it was not measured."""
CPU_FLOPS = {"fp32": 1.9e11, "bf16": 3.8e11}
"""FLOP/s of one core with AVX-512 at 3 GHz: two units of 16 multiply-adds, twice that with bfloat16; presumed."""
CPU_BANDWIDTH = 1.2e10
"""Bytes/s of one core until ``CPU_CHANNELS`` cores share the memory; presumed."""
CPU_CHANNELS = 8
FALLBACK = {"fp8": ("bf16", "fp16", "tf32", "fp32"), "bf16": ("fp16", "tf32", "fp32"), "fp16": ("bf16", "fp32")}
"""Number format -> formats whose figure replaces a missing one, best first."""


@dataclass(frozen=True)
class Hardware:
    """One device of a run; on a CPU, all its cores together."""

    name: str
    flops: Mapping[str, float]
    """Dense FLOP/s by data type: ``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``."""
    bandwidth: float
    """Memory bandwidth in bytes/s."""
    kernel_s: float = KERNEL_S
    """Seconds from one kernel's launch to the next, for tiny kernels that are launched one by one."""
    link: float = 2.5e10
    """Bytes/s to another device of the same machine, one way."""
    host_link: float = 2.5e10
    """Bytes/s to the host's memory, one way."""
    network: float = 2.5e10
    """Bytes/s to a device of another machine."""
    memory: int | None = None
    """Memory in bytes; on a data sheet as its maker counts them."""
    shown: int = 0
    """Total memory in bytes that ``nvidia-smi`` shows, from a data sheet; 0: not known."""
    compute_capability: tuple[int, int] | None = None
    """Compute capability from a data sheet; ``None``: not known."""
    measured: bool = False
    """True if the figures were measured; False if they are a data sheet's."""
    spread: float = 0.2
    """Standard deviation of the logarithm of the device's true speed around these figures."""
    source: str = ""

    @property
    def shared(self) -> bool:
        """True if ranks share the device (a CPU) instead of having one each."""
        return self.name.startswith("cpu")

    def rate(self, kind: str) -> float:
        """Returns the FLOP/s in a number format, on the scale of a data sheet."""
        words = (kind, *FALLBACK.get(kind, ("fp32",)))
        found = next((self.flops[word] for word in words if word in self.flops), max(self.flops.values()))
        return found / REACHED if self.measured else found

    @property
    def bytes_s(self) -> float:
        """Memory bandwidth in bytes/s, on the scale of a data sheet."""
        return self.bandwidth / REACHED if self.measured else self.bandwidth


_Wires = tuple[float, float, float]
"""Bytes/s one way: to a neighbour, to the host, and to another machine as a GPU's share of all network cards."""
_NVLINK_5: _Wires = (9e11, 6.4e10, 4e11)
_NVLINK_4: _Wires = (4.5e11, 6.4e10, 4e11)
_NVLINK_3: _Wires = (3e11, 3.2e10, 2e11)
"""NVLink and PCIe of the data sheets; eight 400 or 200 Gbit/s cards a machine, as NVIDIA's DGX H100 and A100 have."""
_NVLINK_CUT: _Wires = (2e11, 3.2e10, 2e11)
"""NVLink of 400 GB/s both ways, as the A800 has."""
_CARD_5: _Wires = (6.4e10, 6.4e10, 1.25e10)
_CARD: _Wires = (3.2e10, 3.2e10, 1.25e10)
_CARD_3: _Wires = (1.6e10, 1.6e10, 1.25e10)
"""PCIe 5.0, 4.0 and 3.0 with 16 lanes; one card of 100 Gbit/s a machine, presumed."""
_VOLTA: _Wires = (1.5e11, 1.6e10, 1.25e10)

_WHITE = "FP32 accumulation, without sparsity"
_GA102 = f"NVIDIA Ampere GA102 GPU architecture white paper: {_WHITE}"
_ADA = f"NVIDIA Ada GPU architecture white paper, appendix A: {_WHITE}"
_RTX = f"NVIDIA RTX Blackwell GPU architecture white paper, appendix A: {_WHITE}"
_PRO = "NVIDIA RTX Blackwell PRO GPU architecture white paper, Workstation Edition, without sparsity"
_LISTED = "memory and FP32 as technical.city lists them; tensor cores from vendors' lists, not checked"
_HALVED = "data sheet, halved where it counts sparsity"

_ROWS: tuple[tuple[str, tuple[float, ...], float, float, int, tuple[int, int], _Wires, str], ...] = (
    ("H100", (67, 494.7, 989.4, 989.4, 1978.9), 3350, 80, 81_559, (9, 0), _NVLINK_4, f"NVIDIA H100 SXM5 {_HALVED}"),
    ("H100-PCIe", (51, 378, 756, 756, 1513), 2000, 80, 81_559, (9, 0), _CARD_5, f"NVIDIA H100 PCIe {_HALVED}"),
    ("H200", (67, 494.7, 989.4, 989.4, 1978.9), 4800, 141, 143_771, (9, 0), _NVLINK_4, f"NVIDIA H200 SXM {_HALVED}"),
    ("A100-80", (19.5, 156, 312, 312), 2039, 80, 81_920, (8, 0), _NVLINK_3, "NVIDIA A100 data sheet, SXM4 80 GB"),
    ("A100-40", (19.5, 156, 312, 312), 1555, 40, 40_960, (8, 0), _NVLINK_3, "NVIDIA A100 data sheet, SXM4 40 GB"),
    ("A100-PCIe", (19.5, 156, 312, 312), 1935, 80, 0, (8, 0), _CARD, "NVIDIA A100 data sheet, PCIe 80 GB"),
    ("L40S", (91.6, 183, 362.05, 362.05, 733), 864, 48, 46_068, (8, 9), _CARD, f"NVIDIA L40S {_HALVED}"),
    ("L20", (59.4, 59.8, 119.5, 119.5, 239), 864, 48, 46_068, (8, 9), _CARD, _LISTED),
    ("L4", (30.3, 60, 121, 121, 242.5), 300, 24, 23_034, (8, 9), _CARD, f"NVIDIA L4 {_HALVED}"),
    ("RTX 4090", (82.6, 82.6, 165.2, 165.2, 330.3), 1008, 24, 24_564, (8, 9), _CARD, _ADA),
    ("H20", (44, 74, 148, 148, 296), 4000, 96, 97_871, (9, 0), _NVLINK_4, "NVIDIA HGX H20 data sheet, dense"),
    ("H20-3e", (44, 74, 148, 148, 296), 4800, 141, 143_771, (9, 0), _NVLINK_4,
     "computes as NVIDIA's H20; 141 GB of HBM3e as the H200 has"),
    ("GH200", (67, 494.7, 989.4, 989.4, 1978.9), 4000, 96, 97_871, (9, 0), (4.5e11, 4.5e11, 5e10),
     f"NVIDIA GH200, 96 GB HBM3, {_HALVED}"),
    ("H800", (67, 494.7, 989.4, 989.4, 1978.9), 3350, 80, 81_559, (9, 0), (2e11, 6.4e10, 4e11),
     f"NVIDIA H800 SXM5 {_HALVED}; NVLink 400 GB/s"),
    ("A800", (19.5, 156, 312, 312), 2039, 80, 81_920, (8, 0), _NVLINK_CUT, "NVIDIA A800 80 GB SXM data sheet"),
    ("A30", (10.3, 82, 165, 165), 933, 24, 24_576, (8, 0), _CARD, "NVIDIA A30 data sheet, dense"),
    ("A10", (31.2, 62.5, 125, 125), 600, 24, 23_028, (8, 6), _CARD, "NVIDIA A10 data sheet, dense"),
    ("A10G", (31.5, 35, 70, 70), 600, 24, 0, (8, 6), _CARD, "NVIDIA A10G data sheet, dense"),
    ("A6000", (38.7, 77.4, 154.8, 154.8), 768, 48, 49_140, (8, 6), _CARD, f"NVIDIA RTX A6000 {_HALVED}"),
    ("A40", (37.4, 74.8, 149.7, 149.7), 696, 48, 46_068, (8, 6), _CARD, "NVIDIA A40 data sheet, dense"),
    ("RTX 6000 Ada", (91.1, 182.1, 364.2, 364.2, 728.5), 960, 48, 49_140, (8, 9), _CARD,
     f"NVIDIA RTX 6000 Ada Generation {_HALVED}"),
    ("RTX 3090", (35.6, 35.6, 71, 71), 936, 24, 24_576, (8, 6), _CARD, _GA102),
    ("L40", (90.5, 90.5, 181.05, 181.05, 362), 864, 48, 46_068, (8, 9), _CARD, f"NVIDIA L40 {_HALVED}"),
    ("RTX 5090", (104.8, 104.8, 209.5, 209.5, 419), 1792, 32, 32_607, (12, 0), _CARD_5, _RTX),
    ("RTX PRO 6000", (126, 251.9, 503.8, 503.8, 1007.6), 1792, 96, 97_887, (12, 0), _CARD_5, _PRO),
    ("V100-32", (15.7, 0, 0, 125), 900, 32, 32_768, (7, 0), _VOLTA, "NVIDIA V100 data sheet, SXM2 32 GB"),
    ("V100-16", (15.7, 0, 0, 125), 900, 16, 16_384, (7, 0), _VOLTA, "NVIDIA V100 data sheet, SXM2 16 GB"),
    ("T4", (8.1, 0, 0, 65), 320, 16, 15_360, (7, 5), _CARD_3, "NVIDIA T4 data sheet"),
    ("MI300X", (163.4, 653.7, 1307.4, 1307.4, 2614.9), 5300, 192, 196_592, (9, 4), (4.48e11, 6.4e10, 4e11),
     "AMD Instinct MI300X data sheet, dense"),
    ("B200", (75, 1100, 2250, 2250, 4500), 8000, 180, 183_359, (10, 0), _NVLINK_5,
     f"NVIDIA HGX B200 {_HALVED}, one GPU's share"),
)  # fmt: skip
"""Rows of the data sheets: name; TFLOP/s without sparsity in ``KINDS`` (0: none); GB/s and GB of memory; MiB that
``nvidia-smi`` shows (0: not known); compute capability (for AMD, PyTorch's answer); wires; source. verl's table (verl
1dda039 ``utils/flops_counter.py`` 26 to 38) has the same dense BF16 for MI300X, H100, H200, H800, A100, A800, L40S,
L40, A40, L20 and H20; pages that give 1300 or 2600 for the MI300X round it, or mean FP8."""


def _sheet(
    name: str,
    tera: Sequence[float],
    giga_s: float,
    giga: float,
    mebi: int,
    capability: tuple[int, int],
    wires: _Wires,
    source: str,
) -> Hardware:
    flops = {kind: rate * 1e12 for kind, rate in zip(KINDS, tera, strict=False) if rate}
    figures = Hardware(name, flops, giga_s * 1e9, KERNEL_S, *wires, int(giga * 1e9), source=source)
    return replace(figures, shown=mebi << 20, compute_capability=capability)


SHEETS: Mapping[str, Hardware] = {row[0]: _sheet(*row) for row in _ROWS}
"""Name -> data sheet."""

_DRIVER_NAMES = {
    "H100 PCIe": "H100-PCIe",
    "A100-SXM4-40GB": "A100-40",
    "A100-PCIE-40GB": "A100-40",
    "A100 80GB PCIe": "A100-PCIe",
    "A100": "A100-80",
    "V100-SXM2-16GB": "V100-16",
    "V100-PCIE-16GB": "V100-16",
    "V100": "V100-32",
}
"""Part of the driver's name -> data sheet, where the sheet's own name does not occur in the driver's."""


def sheet_of(name: str) -> Hardware | None:
    """Returns the data sheet for its name in any spelling (``a100-80``, ``rtx4090``) or a driver's name."""
    plain = {_plain(own): sheet for own, sheet in SHEETS.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    words = name.replace("-", " ").split()
    if {"MIG", "NVL", "Ti", "D", "Laptop", "Max"} & set(words):  # a slice, or another board
        return None
    parts = dict(zip(SHEETS, SHEETS, strict=True)) | _DRIVER_NAMES
    for part in sorted(parts, key=len, reverse=True):
        if part in name if "-" in part or " " in part else part in words:
            return SHEETS[parts[part]]
    return None


def _plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("-", "").replace("_", "")


def presumed(resources: Resources, name: str = "") -> Hardware:
    """Returns assumed figures of an unmeasured machine: the data sheet of ``name``, else typical ones."""
    sheet = sheet_of(name) if name else None
    if sheet is not None:
        return sheet
    if resources.device == "cpu":
        cores = max(1, resources.cpu_cores)
        flops = {kind: rate * cores for kind, rate in CPU_FLOPS.items()}
        bandwidth = CPU_BANDWIDTH * min(cores, CPU_CHANNELS)
        return Hardware("cpu", flops, bandwidth, 2e-6, memory=resources.host_memory, spread=1.0, source="presumed")
    common = SHEETS["A100-80"]
    return Hardware(
        name or "gpu", common.flops, common.bandwidth, memory=resources.device_memory, spread=1.0, source="presumed"
    )


def probed(answer: Mapping[str, Any]) -> Hardware | None:
    """Returns the device that ``probe_speed`` measured (``Result.data``); ``None`` if its figures are not usable."""
    flops = {str(kind): float(rate) for kind, rate in dict(answer.get("flops") or {}).items() if _positive(rate)}
    if not flops or not _positive(answer.get("bandwidth")):
        return None
    name = str(answer.get("name") or "device")
    if answer.get("device") == "cpu" and not name.startswith("cpu"):
        name = f"cpu {name}"
    fields = ("kernel_s", "link", "host_link", "network")
    told: dict[str, Any] = {key: float(answer[key]) for key in fields if _positive(answer.get(key))}
    memory = answer.get("memory") if _positive(answer.get("memory")) else None
    return Hardware(
        name=name,
        flops=flops,
        bandwidth=float(answer["bandwidth"]),
        memory=None if memory is None else int(memory),
        measured=True,
        spread=0.1,
        source="probe",
        **told,
    )


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
