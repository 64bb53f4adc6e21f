"""Detects other users of a trial's GPUs: before a trial the trial is refused, during a trial it becomes INFRA.

A GPU is called free by its memory. Process ids help only where the driver's ids are this system's:
in a container it reports the host's, and in a virtual machine perhaps too.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from autotune.errors import MachineError
from autotune.machine.nvml import Gpu
from autotune.ports import Clock

FREE_BYTES = 1 << 30
"""What drivers, persistence daemons and a desktop may hold of a free GPU."""
STEP_S = 0.5


class GpuUseGuard:
    """Checks for other users of the GPUs at four moments of a trial; each returns a sentence, or ``None`` if there is
    no other user. This one is for trials that use no GPU."""

    used: int | None = None
    """Bytes in use on the fullest of them when ``during`` looked last, whoever used them; ``None``: not known."""

    def before(self, clock: Clock) -> str | None:  # noqa: ARG002
        """The reason not to start a trial now. Waits a bounded time for memory to be freed."""
        return None

    def again(self) -> str | None:
        """As ``before``, for another trial of processes that already hold the GPUs."""
        return None

    def during(self, members: Set[int]) -> str | None:  # noqa: ARG002
        """Other processes that began to use the GPUs; ``members`` are the trial's own."""
        return None

    def after(self, clock: Clock) -> str | None:  # noqa: ARG002
        """Processes that still hold GPU memory after the trial's processes ended. Waits a bounded time."""
        return None


class GpuGuard(GpuUseGuard):
    """Watches the GPUs ``look`` shows. One per process tree: it remembers who was there at the start."""

    def __init__(
        self,
        look: Callable[[], tuple[Gpu, ...]],
        *,
        pids_are_ours: bool,
        allow_busy: bool = False,
        patience_s: float = 10,
        computes: Callable[[int], bool] = lambda _: True,
        seen: Callable[[], tuple[Gpu, ...] | None] | None = None,
    ) -> None:
        """Arguments:

        look: the GPUs as they are now.
        pids_are_ours: the driver's process ids mean the same here.
        allow_busy: accept who is there at the start.
        patience_s: how long freed memory may take to be reported as free.
        computes: an id is that of a process of this system that has a GPU open (``hardware.has_gpu_open``); asked
            where ids are ours, and others accuse nobody.
        seen: ``look`` for a running trial, which nobody may hold up; it answers ``None`` where the driver takes long.
        """
        self._look = look
        self._seen = seen or look
        self._pids_are_ours = pids_are_ours
        self._allow_busy = allow_busy
        self._patience = patience_s
        self._computes = computes
        self._known: set[int] = set()
        self._suspects: set[int] = set()
        self._used: dict[str, int] = {}
        self.used: int | None = None
        self.peaks: dict[str, int] = {}
        """GPU, as CUDA is told of it -> the most bytes seen in use during the trial, whoever used them."""
        self.busy: str | None = None
        """Set by ``before`` if the trial was let in although someone is there."""

    def before(self, clock: Clock) -> str | None:
        try:
            return self._admit(clock)
        except MachineError as error:
            return str(error)

    def _admit(self, clock: Clock) -> str | None:
        self.busy = self._occupied() if self._allow_busy else self._wait(clock, self._occupied)
        gpus = self._look()
        self._known = {p.pid for gpu in gpus for p in gpu.processes}
        self._used = {gpu.uuid: gpu.memory_used for gpu in gpus}
        return None if self._allow_busy else self.busy

    def again(self) -> str | None:
        self.peaks = {}
        self._suspects = set()
        return None

    def during(self, members: Set[int]) -> str | None:
        self.used = None
        try:
            gpus = self._seen()
        except MachineError as error:
            return str(error)
        if gpus is None:
            return None
        self.used = max((gpu.memory_used for gpu in gpus), default=None)
        for gpu in gpus:
            self.peaks[gpu.cuda_name] = max(gpu.memory_used, self.peaks.get(gpu.cuda_name, 0))
        if not self._pids_are_ours:
            return None
        strangers = {p.pid for gpu in gpus for p in gpu.processes} - self._known - members
        strangers = {pid for pid in strangers if self._computes(pid)}
        again = strangers & self._suspects  # a process of ours may be seen here before it is in the tree
        self._suspects = strangers
        return f"another process ({_join(again)}) began to use the GPU during the trial" if again else None

    def after(self, clock: Clock) -> str | None:
        try:
            return self._wait(clock, self._held)
        except MachineError as error:
            return str(error)

    def _wait(self, clock: Clock, why: Callable[[], str | None]) -> str | None:
        end = clock.monotonic() + self._patience
        while (reason := why()) is not None and clock.monotonic() < end:
            clock.sleep(STEP_S)
        return reason

    def _occupied(self) -> str | None:
        for gpu in self._look():
            pids = {p.pid for p in gpu.processes if not self._pids_are_ours or self._computes(p.pid)}
            if pids or gpu.memory_used > FREE_BYTES:
                who = f" by process {_join(pids)}" if pids else ""
                return f"GPU {gpu.index} is in use{who} ({gpu.memory_used / 2**30:.1f} GiB taken)"
        return None

    def _held(self) -> str | None:
        for gpu in self._look():
            if gpu.memory_used > self._used.get(gpu.uuid, 0) + FREE_BYTES:
                taken = (gpu.memory_used - self._used.get(gpu.uuid, 0)) / 2**30
                return f"GPU {gpu.index} still holds {taken:.1f} GiB that no process of the trial owns"
        return None


def _join(pids: Set[int]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))
