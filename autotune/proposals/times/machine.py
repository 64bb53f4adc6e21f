"""What a device can do, as plain numbers: measured by a probe, from a data sheet, or presumed.

The probe is the child's ``probe_speed``; its figures are what one large matrix product, one large copy and a chain of
tiny kernels reached, so they are below a data sheet's. ``share`` makes the two comparable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from search_spaces.configuration import Resources

REACHED = 0.75
"""Of a data sheet's FLOP/s or bytes/s, what a large product or copy reaches; measured figures are divided by it."""
KERNEL_S = 4e-6
"""Seconds until eager PyTorch has launched one kernel, where nothing was measured."""
CPU_FLOPS = {"fp32": 1.9e11, "bf16": 3.8e11}
"""Of one core with AVX-512 at 3 GHz: two units of 16 multiply-adds, twice that with bfloat16 products; presumed."""
CPU_BANDWIDTH = 1.2e10
"""Bytes/s of one core until ``CPU_CHANNELS`` of them share the memory; presumed."""
CPU_CHANNELS = 8
FALLBACK = {"fp8": ("bf16", "fp16", "tf32", "fp32"), "bf16": ("fp16", "tf32", "fp32"), "fp16": ("bf16", "fp32")}
"""What a product is computed in where there is no figure for its own type."""


@dataclass(frozen=True)
class Hardware:
    """One device of a run; of a CPU all its cores together."""

    name: str
    flops: Mapping[str, float]
    """Dense FLOP/s by type: ``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``."""
    bandwidth: float
    """Bytes/s of its memory."""
    kernel_s: float = KERNEL_S
    """Seconds from one kernel's launch to the next, when kernels are tiny and launched one by one."""
    link: float = 2.5e10
    """Bytes/s to another device of the same machine, one way."""
    host_link: float = 2.5e10
    """Bytes/s to the host's memory, one way."""
    network: float = 2.5e10
    """Bytes/s to a device of another machine."""
    memory: int | None = None
    """Bytes."""
    measured: bool = False
    """Figures are what was reached, not a data sheet's."""
    spread: float = 0.2
    """Standard deviation of the logarithm of all that is not known about it."""
    source: str = ""

    @property
    def shared(self) -> bool:
        """Ranks share it (a CPU), instead of having one each."""
        return self.name.startswith("cpu")

    def rate(self, kind: str) -> float:
        """FLOP/s in a type, by a data sheet's measure."""
        words = (kind, *FALLBACK.get(kind, ("fp32",)))
        found = next((self.flops[word] for word in words if word in self.flops), max(self.flops.values()))
        return found / REACHED if self.measured else found

    @property
    def bytes_s(self) -> float:
        """Bytes/s of its memory, by a data sheet's measure."""
        return self.bandwidth / REACHED if self.measured else self.bandwidth

    def as_json(self) -> dict[str, Any]:
        """Plain data, to be stored with a study."""
        return {**asdict(self), "flops": dict(self.flops)}


_HOPPER = {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12, "fp8": 1978.9e12}
_HOPPER_CARD = {"fp32": 51e12, "tf32": 378e12, "bf16": 756e12, "fp16": 756e12, "fp8": 1513e12}
_AMPERE = {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12}
_Wires = tuple[float, float, float]
"""Bytes/s one way: to a neighbour, to the host, to another machine with all its network cards shared out."""
_NVLINK_5: _Wires = (9e11, 6.4e10, 4e11)
_NVLINK_4: _Wires = (4.5e11, 6.4e10, 4e11)
_NVLINK_3: _Wires = (3e11, 3.2e10, 2e11)
"""NVLink and PCIe of the data sheets; eight 400 or 200 Gbit/s cards a machine, as NVIDIA's DGX H100 and A100 have."""
_NVLINK_CUT: _Wires = (2e11, 3.2e10, 2e11)
"""400 GB/s both ways, as the A800 has."""
_CARD_5: _Wires = (6.4e10, 6.4e10, 1.25e10)
_CARD: _Wires = (3.2e10, 3.2e10, 1.25e10)
_CARD_3: _Wires = (1.6e10, 1.6e10, 1.25e10)
"""PCIe 5.0, 4.0 and 3.0, 16 lanes; one card of 100 Gbit/s a machine, presumed."""


def _sheet(
    name: str, flops: Mapping[str, float], bandwidth: float, memory: float, wires: _Wires, source: str
) -> Hardware:
    link, host, network = wires
    return Hardware(
        name, flops, bandwidth, link=link, host_link=host, network=network, memory=int(memory), source=source
    )


def _tensor(half: float, fp32: float, tf32: float) -> dict[str, float]:
    """Before FP8."""
    return {"fp32": fp32, "tf32": tf32, "bf16": half, "fp16": half}


def _ada(tensor: float, fp32: float, tf32: float, fp8: float) -> dict[str, float]:
    return {"fp32": fp32, "tf32": tf32, "bf16": tensor, "fp16": tensor, "fp8": fp8}


_BLACKWELL = {"fp32": 75e12, "tf32": 1100e12, "bf16": 2250e12, "fp16": 2250e12, "fp8": 4500e12}
_VOLTA = {"fp32": 15.7e12, "fp16": 125e12}
_MI300X = {"fp32": 163.4e12, "tf32": 653.7e12, "bf16": 1307.4e12, "fp16": 1307.4e12, "fp8": 2614.9e12}
_GA102 = "NVIDIA Ampere GA102 GPU architecture white paper: FP32 accumulation, without sparsity"
_HALVED = "data sheet, halved where it counts sparsity"

# Dense BF16 of MI300X, H100, H200, H800, A100, A800, L40S, L40, A40, L20 and H20 is as in verl's table too
# (verl 1dda039 ``utils/flops_counter.py`` 26 to 38); pages that say 1300 or 2600 for the MI300X round it, or mean FP8.
SHEETS: Mapping[str, Hardware] = {
    found.name: found
    for found in (
        _sheet("H100", _HOPPER, 3.35e12, 80e9, _NVLINK_4, f"NVIDIA H100 SXM5 {_HALVED}"),
        _sheet("H100-PCIe", _HOPPER_CARD, 2.0e12, 80e9, _CARD_5, f"NVIDIA H100 PCIe {_HALVED}"),
        _sheet("H200", _HOPPER, 4.8e12, 141e9, _NVLINK_4, f"NVIDIA H200 SXM {_HALVED}"),
        _sheet("A100-80", _AMPERE, 2.039e12, 80e9, _NVLINK_3, "NVIDIA A100 data sheet, SXM4 80 GB"),
        _sheet("A100-40", _AMPERE, 1.555e12, 40e9, _NVLINK_3, "NVIDIA A100 data sheet, SXM4 40 GB"),
        _sheet("L40S", _ada(362.05e12, 91.6e12, 183e12, 733e12), 8.64e11, 48e9, _CARD, f"NVIDIA L40S {_HALVED}"),
        _sheet(
            "L20",
            _ada(119.5e12, 59.4e12, 59.8e12, 239e12),
            8.64e11,
            48e9,
            _CARD,
            "memory and FP32 as technical.city lists them; tensor cores from vendors' lists, not checked",
        ),
        _sheet("L4", _ada(121e12, 30.3e12, 60e12, 242.5e12), 3e11, 24e9, _CARD, f"NVIDIA L4 {_HALVED}"),
        _sheet(
            "RTX 4090",
            _ada(165.2e12, 82.6e12, 82.6e12, 330.3e12),
            1.008e12,
            24e9,
            _CARD,
            "NVIDIA Ada GPU architecture white paper, appendix A: FP32 accumulation, without sparsity",
        ),
        _sheet("H20", _ada(148e12, 44e12, 74e12, 296e12), 4e12, 96e9, _NVLINK_4, "NVIDIA HGX H20 data sheet, dense"),
        _sheet(
            "H20-3e",
            _ada(148e12, 44e12, 74e12, 296e12),
            4.8e12,
            141e9,
            _NVLINK_4,
            "computes as NVIDIA's H20; 141 GB of HBM3e as the H200 has",
        ),
        _sheet("GH200", _HOPPER, 4e12, 96e9, (4.5e11, 4.5e11, 5e10), f"NVIDIA GH200, 96 GB HBM3, {_HALVED}"),
        _sheet("H800", _HOPPER, 3.35e12, 80e9, (2e11, 6.4e10, 4e11), f"NVIDIA H800 SXM5 {_HALVED}; NVLink 400 GB/s"),
        _sheet("A800", _AMPERE, 2.039e12, 80e9, _NVLINK_CUT, "NVIDIA A800 80 GB SXM data sheet"),
        _sheet("A30", _tensor(165e12, 10.3e12, 82e12), 9.33e11, 24e9, _CARD, "NVIDIA A30 data sheet, dense"),
        _sheet("A10", _tensor(125e12, 31.2e12, 62.5e12), 6e11, 24e9, _CARD, "NVIDIA A10 data sheet, dense"),
        _sheet("A6000", _tensor(154.8e12, 38.7e12, 77.4e12), 7.68e11, 48e9, _CARD, f"NVIDIA RTX A6000 {_HALVED}"),
        _sheet("A40", _tensor(149.7e12, 37.4e12, 74.8e12), 6.96e11, 48e9, _CARD, "NVIDIA A40 data sheet, dense"),
        _sheet(
            "RTX 6000 Ada",
            _ada(364.2e12, 91.1e12, 182.1e12, 728.5e12),
            9.6e11,
            48e9,
            _CARD,
            f"NVIDIA RTX 6000 Ada Generation {_HALVED}",
        ),
        _sheet("RTX 3090", _tensor(71e12, 35.6e12, 35.6e12), 9.36e11, 24e9, _CARD, _GA102),
        _sheet("L40", _ada(181.05e12, 90.5e12, 90.5e12, 362e12), 8.64e11, 48e9, _CARD, f"NVIDIA L40 {_HALVED}"),
        _sheet(
            "RTX 5090",
            _ada(209.5e12, 104.8e12, 104.8e12, 419e12),
            1.792e12,
            32e9,
            _CARD_5,
            "NVIDIA RTX Blackwell GPU architecture white paper, appendix A: FP32 accumulation, without sparsity",
        ),
        _sheet(
            "RTX PRO 6000",
            _ada(503.8e12, 126e12, 251.9e12, 1007.6e12),
            1.792e12,
            96e9,
            _CARD_5,
            "NVIDIA RTX Blackwell PRO GPU architecture white paper, Workstation Edition, without sparsity",
        ),
        _sheet("V100-32", _VOLTA, 9e11, 32e9, (1.5e11, 1.6e10, 1.25e10), "NVIDIA V100 data sheet, SXM2 32 GB"),
        _sheet("V100-16", _VOLTA, 9e11, 16e9, (1.5e11, 1.6e10, 1.25e10), "NVIDIA V100 data sheet, SXM2 16 GB"),
        _sheet("T4", {"fp32": 8.1e12, "fp16": 65e12}, 3.2e11, 16e9, _CARD_3, "NVIDIA T4 data sheet"),
        _sheet("MI300X", _MI300X, 5.3e12, 192e9, (4.48e11, 6.4e10, 4e11), "AMD Instinct MI300X data sheet, dense"),
        _sheet("B200", _BLACKWELL, 8e12, 180e9, _NVLINK_5, f"NVIDIA HGX B200 {_HALVED}, one GPU's share"),
    )
}
"""By the name ``autotune plan`` takes; FLOP/s without sparsity."""

_DRIVER_NAMES = (
    ("B200", "B200"),
    ("H200", "H200"),
    ("H100 PCIe", "H100-PCIe"),
    ("H100", "H100"),
    ("A100-SXM4-40GB", "A100-40"),
    ("A100-PCIE-40GB", "A100-40"),
    ("A100", "A100-80"),
    ("H20-3e", "H20-3e"),
    ("H20", "H20"),
    ("GH200", "GH200"),
    ("H800", "H800"),
    ("A800", "A800"),
    ("RTX A6000", "A6000"),
    ("RTX PRO 6000", "RTX PRO 6000"),
    ("RTX 5090", "RTX 5090"),
    ("RTX 3090", "RTX 3090"),
    ("V100-SXM2-16GB", "V100-16"),
    ("V100-PCIE-16GB", "V100-16"),
    ("V100", "V100-32"),
    ("MI300X", "MI300X"),
    ("RTX 6000 Ada", "RTX 6000 Ada"),
    ("A40", "A40"),
    ("A30", "A30"),
    ("A10", "A10"),
    ("T4", "T4"),
    ("L40S", "L40S"),
    ("L40", "L40"),
    ("RTX 4090", "RTX 4090"),
    ("L20", "L20"),
    ("L4", "L4"),
)
"""Part of the driver's name -> sheet, the longer ones first."""


def sheet_of(name: str) -> Hardware | None:
    """The data sheet for a sheet's own name in any spelling (``a100-80``, ``rtx4090``) or for a driver's name."""
    plain = {_plain(own): sheet for own, sheet in SHEETS.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    words = name.replace("-", " ").split()
    if {"MIG", "NVL", "Ti", "D", "Laptop", "Max"} & set(words):  # a slice, or another board
        return None
    for part, own in _DRIVER_NAMES:
        if part in name if "-" in part or " " in part else part in words:
            return SHEETS[own]
    return None


def _plain(name: str) -> str:
    return name.lower().replace(" ", "").replace("-", "").replace("_", "")


def presumed(resources: Resources, name: str = "") -> Hardware:
    """Of a machine nobody measured: the data sheet of ``name``, else what its kind mostly has, marked as wide."""
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
    """The device the child's ``probe_speed`` measured; ``None`` if its figures are not usable.

    Args:
        answer: ``Result.data``, or what ``as_json`` gave.
    """
    flops = {str(kind): float(rate) for kind, rate in dict(answer.get("flops") or {}).items() if _positive(rate)}
    if not flops or not _positive(answer.get("bandwidth")):
        return None
    name = str(answer.get("name") or "device")
    if answer.get("device") == "cpu" and not name.startswith("cpu"):
        name = f"cpu {name}"
    fields = ("kernel_s", "link", "host_link", "network")
    told = {key: float(answer[key]) for key in fields if _positive(answer.get(key))}
    memory = answer.get("memory") if _positive(answer.get("memory")) else None
    return Hardware(
        name=name,
        flops=flops,
        bandwidth=float(answer["bandwidth"]),
        memory=None if memory is None else int(memory),
        measured=bool(answer.get("measured", True)),
        spread=float(answer.get("spread", 0.1)),
        source=str(answer.get("source") or "probe"),
        **told,
    )


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
