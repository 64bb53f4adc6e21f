"""Knobs that act by variables the process is started with. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from trainer.frameworks.trl.keys import acting

KEEP = (
    "glibc.malloc.arena_max=1",
    "glibc.malloc.mmap_max=0",
    "glibc.malloc.top_pad=268435456",
    "glibc.malloc.trim_threshold=1099511627776",
)
"""glibc returns a freed tensor to the system at once, and every page of the next one is mapped and cleared again;
with these one heap keeps what it has had (glibc manual, "Memory Allocation Tunables"). In bytes."""
HUGE = "glibc.malloc.hugetlb=1"
"""The heap asks for transparent huge pages, of which the kernel clears 2 MiB at a time (glibc 2.35)."""


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """What a process that trains with ``configuration`` is started with, beyond what it would be anyway."""
    acts = acting(configuration)
    found: dict[str, str] = {}
    if acts.get("expandable_segments") is True:
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if acts.get("host_allocator") in ("keep", "keep_huge_pages"):
        tunables = (*KEEP, HUGE) if acts["host_allocator"] == "keep_huge_pages" else KEEP
        found["GLIBC_TUNABLES"] = ":".join(tunables)
    return found
