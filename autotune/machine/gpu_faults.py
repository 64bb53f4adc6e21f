"""Errors of a GPU that make a trial on it say nothing of its configuration. Pure."""

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
"""Code -> what happened, and whether it lasts until the GPU is reset, by NVIDIA's catalogue of XIDs ("Analyzing Xid
Errors", bucket of the immediate action: ``RESTART_APP`` does not last). Codes that a program causes, as 13, 31, 43 and
45, and corrected errors, as 63 and 92, are left out."""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """A GPU that is not fit for trials, and why."""

    uuid: str
    """As ``Gpu.uuid``; empty where the GPU does not even tell that."""
    index: int
    what: str
    lasts: bool = True
    """Until the GPU is reset or replaced."""

    def __str__(self) -> str:
        return f"GPU {self.index}: {self.what}"


def of_xid(uuid: str, index: int, code: int) -> GpuFault | None:
    """The fault a driver event tells of; ``None``: a program's own, or a corrected one."""
    if code not in XIDS:
        return None
    what, lasts = XIDS[code]
    return GpuFault(uuid, index, f"{what} (XID {code})", lasts)


def of_memory_errors(uuid: str, index: int, grown: int) -> GpuFault | None:
    """The fault uncorrectable memory errors make, by how many there are more than before."""
    if grown <= 0:
        return None
    return GpuFault(uuid, index, f"{grown} new uncorrectable memory errors (ECC)", lasts=False)


def sentence(faults: Sequence[GpuFault]) -> str:
    """``GPU 3: it has fallen off the bus (XID 79); GPU 5: …``."""
    return "; ".join(dict.fromkeys(str(fault) for fault in faults))
