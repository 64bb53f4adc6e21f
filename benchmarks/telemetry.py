"""``python -m benchmarks.telemetry [SECONDS]``: what it costs to record what GPUs and processes do.

The sampler's share of a core, over SECONDS (20 if left out), with the machine's own driver where there is one, and else
with one that is made up (``tests/support/nvml``), whose answers cost nothing: then it is the sampler's own share.
The same with a made-up driver that takes 20 ms of CPU for each reading. Then microseconds of what the child does at
each phase boundary and at the end of each cycle; the allocator's counters are read for the memory peaks anyway.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from autotune.machine.nvml import GpuReader, GpuReading, open_gpus
from autotune.running.gpu_sampler import GpuSampler
from tests.support.nvml import pynvml as made_up
from trainer.child.contract import Phase, PhaseMark
from trainer.child.usage import UsageWatch

MARKS = 20_000
GPUS = 8
SLOW_S = 0.02


class Slow:
    """A reader of ``GPUS`` GPUs whose driver computes for ``SLOW_S`` at each reading."""

    def read(self) -> tuple[GpuReading, ...]:
        end = time.thread_time() + SLOW_S
        while time.thread_time() < end:
            pass
        return (GpuReading(busy=0.5),) * GPUS

    def close(self) -> None:
        """Nothing is open."""


def share(open_reader: Callable[[], GpuReader | Slow | None], seconds: float) -> float:
    """Of a core, over so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        mark = PhaseMark(Path(folder) / "phase")
        mark.set(Phase.UPDATE.value, 0, "recorded")
        sampler = GpuSampler(open_reader, Path(folder) / "phase", SystemClock())  # type: ignore[arg-type]
        began = time.monotonic()
        sampler.start()
        time.sleep(seconds)
        sampler.finish()
        mark.close()
        return sampler.cpu_s / (time.monotonic() - began)


def of_child() -> tuple[float, float]:
    """Microseconds of a phase boundary and of a cycle's end, allocator counters included."""
    watch = UsageWatch()
    stats = {f"counter.{n}": n for n in range(200)} | {"num_device_alloc": 5}
    watch.begin(stats)
    began = time.perf_counter()
    for _ in range(MARKS):
        watch.mark(Phase.UPDATE)
    each = (time.perf_counter() - began) / MARKS
    watch.begin(stats)
    for _ in range(200):
        watch.mark(Phase.UPDATE)
    began = time.perf_counter()
    watch.end(stats)
    return 1e6 * each, 1e6 * (time.perf_counter() - began)


def main(arguments: Sequence[str]) -> int:
    """Prints; returns the exit status."""
    try:
        seconds = float(arguments[0]) if arguments else 20.0
    except ValueError:
        print(__doc__, file=sys.stderr)
        return 2
    found = hardware.visible_gpus()
    os.environ["MADE_UP_GPUS"] = json.dumps([{}] * GPUS)
    uuids = [gpu.uuid for gpu in found] or [f"GPU-{n:08x}" for n in range(GPUS)]
    library = None if found else made_up
    name = f"{len(found)} x {found[0].name}" if found else f"a made-up driver of {GPUS} GPUs"
    print(f"the sampler with {name}: {share(lambda: open_gpus(uuids, library), seconds):.2%} of a core")
    print(f"with a driver that computes {1000 * SLOW_S:.0f} ms a reading: {share(Slow, seconds):.2%} of a core")
    boundary, end = of_child()
    print(f"the child: {boundary:.1f} us a phase boundary, {end:.0f} us at the end of a cycle of 200 boundaries")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
