"""Samples NVML while a trial runs: adds GPU figures to the trial's cycle records, and notices GPU faults."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autotune.domain import CycleRecord
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.gpu_samples import WHOLE, GpuSample, slowed, use_of
from autotune.machine.nvml import GpuReader
from autotune.ports import Clock
from trainer.child.contract import CycleKind, read_phase

PERIOD_S = 0.2
"""Seconds between two readings; the driver updates its figures no faster."""
DUTY = 0.01
"""Largest share of one core that readings may cost; slow readings are made less often."""
FAULTS_S = 2.0
"""Seconds between two checks for faults."""
END_S = 10.0
"""Most seconds to wait for a pending reading when a trial ends; after that, its thread is left to end by itself."""
SLOWED = 0.05
"""Least relative drop of the clock at which a cycle is marked; under load an H100's clock stays within 2 %."""
MOST_SAMPLES = 36_000
"""Most samples in memory, two hours of them; of a longer cycle, the last ones count."""


class GpuSampler(threading.Thread):
    """Samples in a separate thread from ``start`` to ``finish``; without a driver the thread ends at once.

    Args:
        open_reader: opens NVML in this thread, because the driver may be slow.
        phase_file: file with the trial's current phase.
    """

    def __init__(self, open_reader: Callable[[], GpuReader | None], phase_file: Path, clock: Clock) -> None:
        super().__init__(name="gpu-sampler", daemon=True)
        self._open = open_reader
        self._phase_file = phase_file
        self._clock = clock
        self._done = threading.Event()
        self._samples: deque[GpuSample] = deque(maxlen=MOST_SAMPLES)
        self._lock = threading.Lock()
        self._faults: list[GpuFault] = []
        self._usual: dict[CycleKind, float] = {}
        self.cpu_s = 0.0
        """CPU seconds that this thread has used."""

    def run(self) -> None:
        began = time.thread_time()
        reader = self._open()
        if reader is None:
            return
        try:
            pause, next_faults = 0.0, self._clock.monotonic()
            while not self._done.wait(pause):
                before = time.thread_time()
                self.look(reader)
                if self._clock.monotonic() >= next_faults:
                    next_faults = self._clock.monotonic() + FAULTS_S
                    self._faults.extend(reader.faults())
                now = time.thread_time()
                self.cpu_s = now - began
                pause = max(PERIOD_S, (now - before) / DUTY)
            self._faults.extend(reader.faults())
        finally:
            reader.close()

    @property
    def faults(self) -> tuple[GpuFault, ...]:
        """Faults seen so far; complete after ``finish``."""
        return tuple(self._faults)

    def look(self, reader: GpuReader) -> None:
        """Takes one sample."""
        mark = read_phase(self._phase_file)
        phase, cycle = ("", -1) if mark is None else (mark.phase, mark.cycle)
        sample = GpuSample(self._clock.now(), phase, cycle, reader.read())
        with self._lock:
            self._samples.append(sample)

    def add_to(self, record: CycleRecord) -> CycleRecord:
        """Returns a record of rank 0 with its cycle's GPU figures, marked if their clock was low; others unchanged."""
        if record.rank:
            return record
        with self._lock:
            # A record may come late, after the next cycle, but none comes of a cycle before one that was told.
            while len(self._samples) > 1 and self._samples[1].at < record.started:
                self._samples.popleft()
            samples = tuple(self._samples)
        return self._marked(replace(record, gpu=use_of(samples, record)))

    def _marked(self, record: CycleRecord) -> CycleRecord:
        """Marks a cycle with a low GPU clock, which the reference kernel misses because it runs between cycles."""
        whole = record.gpu.get(WHOLE)
        if whole is None:
            return record
        lost = slowed(whole, self._usual.get(record.cycle_kind))
        self._usual[record.cycle_kind] = max(whole.sm_mhz or 0.0, self._usual.get(record.cycle_kind, 0.0))
        if lost <= SLOWED or not record.accepted:
            return record
        return replace(record, noisy=True, drift=max(lost, record.drift or 0.0))

    def finish(self) -> None:
        """Stops sampling; waits at most ``END_S`` for a pending reading."""
        self._done.set()
        if self.is_alive():
            self.join(END_S)
