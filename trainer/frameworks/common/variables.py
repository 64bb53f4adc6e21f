"""Knobs that act by variables the process is started with, whatever framework it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue

ALLOCATOR, TUNABLES = "PYTORCH_CUDA_ALLOC_CONF", "GLIBC_TUNABLES"
SEGMENTS = "expandable_segments:True"
_KEEP = (
    "glibc.malloc.arena_max=1",
    "glibc.malloc.mmap_max=0",
    "glibc.malloc.top_pad=268435456",
    "glibc.malloc.trim_threshold=1099511627776",
)
"""glibc returns a freed tensor to the system at once, and every page of the next one is mapped and cleared again;
with these one heap keeps what it has had (glibc manual, "Memory Allocation Tunables"). In bytes."""
_HUGE = "glibc.malloc.hugetlb=1"
"""The heap asks for transparent huge pages, of which the kernel clears 2 MiB at a time (glibc 2.35)."""
HEAPS: Mapping[str, str] = {"keep": ":".join(_KEEP), "keep_huge_pages": ":".join((*_KEEP, _HUGE))}
"""Value of ``host_allocator`` -> ``TUNABLES``; any other sets none."""


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Environment variables that a process training with ``configuration`` needs in addition."""
    found: dict[str, str] = {}
    if configuration.get("expandable_segments") is True:
        found[ALLOCATOR] = SEGMENTS
    heap = HEAPS.get(str(configuration.get("host_allocator")))
    return found if heap is None else {**found, TUNABLES: heap}
