"""Environment variables that set knobs, for every framework. Pure."""

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
"""Keeps freed memory in one heap, in bytes: by default glibc returns a freed tensor at once, and the next one's pages
are mapped and cleared again (glibc manual, "Memory Allocation Tunables")."""
_HUGE = "glibc.malloc.hugetlb=1"
"""Makes the heap use transparent huge pages, which the kernel clears 2 MiB at a time (glibc 2.35)."""
HEAPS: Mapping[str, str] = {"keep": ":".join(_KEEP), "keep_huge_pages": ":".join((*_KEEP, _HUGE))}
"""Value of ``host_allocator`` -> ``TUNABLES``; any other value sets none."""


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the additional environment variables of a process that trains with ``configuration``."""
    found: dict[str, str] = {}
    if configuration.get("expandable_segments") is True:
        found[ALLOCATOR] = SEGMENTS
    heap = HEAPS.get(str(configuration.get("host_allocator")))
    return found if heap is None else {**found, TUNABLES: heap}
