"""Hardware faults of GPUs. A trial on a faulty GPU gives no verdict on its configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

XIDS: Mapping[int, tuple[str, bool]] = {
    48: ("an uncorrectable memory error", False),
    62: ("its micro-controller has halted", True),
    64: ("a faulty row of its memory could not be replaced", True),
    74: ("an NVLink error", True),
    79: ("it has fallen off the bus", True),
    94: ("an uncorrectable memory error, contained", False),
    95: ("an uncorrectable memory error, not contained", True),
    119: ("its system processor does not answer", True),
    120: ("an error of its system processor", True),
    140: ("an uncorrectable memory error, not recovered", True),
    143: ("it could not be initialised", True),
}
"""Code -> (fault, whether it lasts until the GPU is reset), from NVIDIA's catalogue of XIDs ("Analyzing Xid Errors";
faults with the immediate action ``RESTART_APP`` do not last). Codes that a program causes, such as 13, 31, 43 and 45,
and corrected errors, such as 63 and 92, are absent."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """Fault that makes a GPU unfit for trials."""

    uuid: str
    """``Gpu.uuid``; empty if the GPU does not report it."""
    index: int
    what: str
    lasts: bool = True
    """True if the fault lasts until the GPU is reset or replaced."""

    def __str__(self) -> str:
        return f"GPU {self.index}: {self.what}"


def of_xid(uuid: str, index: int, code: int) -> GpuFault | None:
    """Returns the fault of a driver's XID event; ``None`` if a program caused it or it was corrected."""
    if code not in XIDS:
        return None
    what, lasts = XIDS[code]
    return GpuFault(uuid, index, f"{what} (XID {code})", lasts)


def of_memory_errors(uuid: str, index: int, grown: int) -> GpuFault | None:
    """Returns the fault of uncorrectable memory errors; ``grown`` is their increase since the last count."""
    if grown <= 0:
        return None
    return GpuFault(uuid, index, f"{grown} new uncorrectable memory errors (ECC)", lasts=False)


def sentence(faults: Sequence[GpuFault]) -> str:
    """Joins faults to one sentence: ``GPU 3: it has fallen off the bus (XID 79); GPU 5: …``."""
    return "; ".join(dict.fromkeys(str(fault) for fault in faults))
