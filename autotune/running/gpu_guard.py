"""Finds other users of a trial's GPUs: before the trial, they prevent its start; during it, they turn it into INFRA.

A GPU counts as free by its memory. Process ids help only if the driver's ids are this system's: in a container the
driver reports the host's, and in a virtual machine perhaps too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from autotune.errors import MachineError
from autotune.machine import gpu_choice, gpu_faults
from autotune.machine.gpu_faults import GpuFault
from autotune.machine.nvml import Gpu
from autotune.ports import Clock
from autotune.wording.numbers import counted

T = TypeVar("T")
PATIENCE_S = 60.0
"""Most seconds for an answer; a driver that resets a GPU or starts without persistence needs 20 s and more."""


class PatientCall(Generic[T]):
    """Calls a slow function in a thread with a time limit; at most one call is pending."""

    def __init__(self, function: Callable[[], T], patience_s: float = PATIENCE_S) -> None:
        self._function = function
        self._patience = patience_s
        self._running: Future[T] | None = None
        self._began = 0.0

    def __call__(self) -> T:
        """Returns the function's result or error. Raises ``MachineError`` without an answer within ``patience_s``."""
        while (answer := self.soon(max(0.0, self._patience - self._age_s))) is None:
            continue
        return answer

    def soon(self, wait_s: float = 0.5) -> T | None:
        """Returns the result if it comes within ``wait_s`` seconds, else ``None``; the next call waits for the same
        call."""
        call = self._running = self._running or self._begun()
        if wait([call], wait_s).done:
            self._running = None
            return call.result()
        if self._age_s >= self._patience:
            raise MachineError(f"the GPU driver has not answered for {self._age_s:.0f} s")
        return None

    @property
    def _age_s(self) -> float:
        """Seconds since the pending call began."""
        return time.monotonic() - self._began if self._running is not None else 0.0

    def _begun(self) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self._function())
            except BaseException as error:  # it is raised where the answer is asked for
                future.set_exception(error)

        self._began = time.monotonic()
        threading.Thread(target=run, name="gpu-driver", daemon=True).start()
        return future


FREE_BYTES = 1 << 30
"""Bytes that drivers, persistence daemons and a desktop may use of a free GPU."""
STEP_S = 0.5


class GpuUseGuard:
    """Interface of checks for other users of the GPUs: before, again, during and after a trial; each returns a sentence
    or ``None``. This base class finds none; it serves CPU trials."""

    used: int | None = None
    """Bytes in use on the fullest GPU at the last call of ``during``, by any process; ``None``: unknown."""

    def before(self, clock: Clock) -> str | None:  # noqa: ARG002
        """Returns the reason not to start a trial now. Waits a bounded time for memory to be freed."""
        return None

    def again(self) -> str | None:
        """Prepares for another trial of the same processes, which already hold the GPUs; returns as ``before``."""
        return None

    def during(self, members: Set[int]) -> str | None:  # noqa: ARG002
        """Returns a sentence on new users of the GPUs other than ``members``, the trial's process ids."""
        return None

    def after(self, clock: Clock) -> str | None:  # noqa: ARG002
        """Returns a sentence on GPU memory still held after the trial's processes ended. Waits a bounded time."""
        return None


class GpuGuard(GpuUseGuard):
    """Watches the GPUs that ``look`` returns. Use one per process tree: it remembers the users at the start."""

    def __init__(
        self,
        look: Callable[[], tuple[Gpu, ...]],
        *,
        pids_are_ours: bool,
        allow_busy: bool = False,
        patience_s: float = 10,
        computes: Callable[[int], bool] = lambda _: True,
        latest: Callable[[], tuple[Gpu, ...] | None] | None = None,
    ) -> None:
        """Makes a guard.

        Args:
            look: returns the current state of the GPUs.
            pids_are_ours: true if the driver's process ids are this system's.
            allow_busy: accept other users at the start.
            patience_s: seconds until freed memory must be reported as free.
            computes: tells whether an id is of a process here that has a GPU open (``hardware.has_gpu_open``); others
                do not count as users. It is called only if the driver's ids are this system's.
            latest: ``look`` for a running trial, which must not wait; ``None`` if the driver takes long.
        """
        self._look = look
        self._seen = latest or look
        self._pids_are_ours = pids_are_ours
        self._allow_busy = allow_busy
        self._patience = patience_s
        self._computes = computes
        self._known: set[int] = set()
        self._suspects: set[int] = set()
        self._used: dict[str, int] = {}
        self.used: int | None = None
        self.peaks: dict[str, int] = {}
        """Maps a GPU's CUDA name to the most bytes in use during the trial, by any process."""
        self.busy: str | None = None
        """Sentence of ``before`` if the trial was let in despite another user."""

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
            return self._wait(clock, self._unfreed)
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

    def _unfreed(self) -> str | None:
        for gpu in self._look():
            if gpu.memory_used > self._used.get(gpu.uuid, 0) + FREE_BYTES:
                taken = (gpu.memory_used - self._used.get(gpu.uuid, 0)) / 2**30
                return f"GPU {gpu.index} still holds {taken:.1f} GiB that no process of the trial owns"
        return None


def _join(pids: Set[int]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))


class GpuPool:
    """Remembers faulty GPUs, and the GPU model of the first trial, as long as the tuner runs."""

    def __init__(self) -> None:
        self._faults: dict[str, GpuFault] = {}
        self._first: Gpu | None = None

    def quarantine(self, faults: Iterable[GpuFault]) -> None:
        """Records faults: later trials use other GPUs, or those with temporary faults if there are too few."""
        for fault in faults:
            known = self._faults.get(fault.uuid)
            if known is None or not known.lasts:
                self._faults[fault.uuid] = fault

    def gpus_for_next(self, visible: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
        """Returns the GPUs of the next trial, in the order of ``visible``.

        Raises:
            MachineError: fewer than ``count`` can be used, or their kind has changed.
        """
        fit = [gpu for gpu in visible if not self._lasts(gpu)]
        if len(fit) < count <= len(visible):
            unfit = gpu_faults.sentence([self._faults[gpu.uuid] for gpu in visible if self._lasts(gpu)])
            raise MachineError(
                f"the study needs {counted(count, 'GPU')}, and {len(fit)} can be used; {unfit}. Reset it "
                "(nvidia-smi --gpu-reset, or restart the machine) and start the study again"
            )
        best = sorted(fit, key=lambda gpu: gpu.uuid in self._faults)[:count]
        chosen = gpu_choice.held([gpu for gpu in fit if gpu in best], count)
        self._first = self._first or (chosen[0] if chosen else None)
        if changed := next((gpu for gpu in chosen if self._first and not gpu_choice.alike(self._first, gpu)), None):
            was = "" if self._first is None else gpu_choice.kind_of(self._first)
            raise MachineError(
                f"GPU {changed.index} is {gpu_choice.kind_of(changed)} now, and the study began on {was}: "
                "was its MIG mode changed? Undo that, or begin a new study"
            )
        return chosen

    def _lasts(self, gpu: Gpu) -> bool:
        fault = self._faults.get(gpu.uuid)
        return fault is not None and fault.lasts
