"""A stand-in for ``torch.cuda``: a caching allocator, and streams whose clock only the test moves on."""

from __future__ import annotations

from typing import Any

GIB = 1 << 30


class Stream:
    """Work in order; ``done`` is when the last of it ends, in seconds."""

    def __init__(self) -> None:
        self.done = 0.0

    def work(self, seconds: float) -> None:
        self.done += seconds

    def wait_stream(self, stream: Stream) -> None:
        self.done = max(self.done, stream.done)


class StandInCuda:
    """One GPU. Whatever the allocator has from the driver it keeps until ``empty_cache``.

    Args:
        others: bytes in use beside the allocator's: contexts, an engine's own memory.
    """

    def __init__(self, total: int = 80 * GIB, others: int = GIB) -> None:
        self.total, self.others = total, others
        self.now = {"allocated": 0, "reserved": 0}
        self.peak = dict(self.now)
        self.retries = 0
        self._stream = Stream()
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
                assert enable_timing, "an event without a clock has no elapsed time"
                self.at: float | None = None

            def record(self, stream: Stream | None = None) -> None:
                self.at = (stream or cuda.current_stream()).done

            def elapsed_time(self, end_event: Any) -> float:
                return 1000.0 * (end_event.at - self.at)

        self.Event = Event

    def allocate(self, size: int) -> None:
        self.now["allocated"] += size
        self.now["reserved"] = max(self.now.values())
        self.peak = {name: max(self.peak[name], value) for name, value in self.now.items()}

    def free(self, size: int) -> None:
        self.now["allocated"] -= size

    def empty_cache(self) -> None:
        self.now["reserved"] = self.now["allocated"]

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        return self.total - self.others - self.now["reserved"], self.total

    def memory_stats(self, device: object = None) -> dict[str, int]:
        found = {f"{name}_bytes.all.current": value for name, value in self.now.items()}
        return {
            **found,
            **{f"{name}_bytes.all.peak": value for name, value in self.peak.items()},
            "num_alloc_retries": self.retries,
        }

    def reset_peak_memory_stats(self, device: object = None) -> None:
        self.peak = dict(self.now)

    def current_stream(self, device: object = None) -> Stream:
        return self._stream

    def synchronize(self, device: object = None) -> None: ...
