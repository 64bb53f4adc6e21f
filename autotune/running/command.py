"""Runs a command as its own process tree, as the user would, and passes on its output lines with arrival times."""

from __future__ import annotations

import queue
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autotune.machine import other_load
from autotune.ports import Clock, StopToken
from autotune.running.ending import Stop
from autotune.running.job import Graces
from autotune.running.launch import spawn_into
from autotune.running.log import CappedLog, read_tail
from autotune.running.process_tree import ProcessTree, become_subreaper
from autotune.running.watchdog import TreeMemory, Watchdog

LONGEST_LINE = 1 << 20
"""Most bytes of a line; a longer one is passed on in pieces."""


@dataclass(frozen=True)
class OutputLine:
    """One line of standard output."""

    at: float
    """Arrival of the line's end, in seconds of ``Clock.monotonic``."""
    text: str
    others_s: float | None = None
    """Seconds of the machine that other programs have taken from the command so far (``other_load.TakenTime``);
    ``None``: unknown."""


@dataclass(frozen=True)
class BoundedCommand:
    """A command line with its environment, time limit and memory limit."""

    argv: tuple[str, ...]
    cwd: Path
    tag: str
    logs: Path
    """Folder for ``stdout.txt`` and ``stderr.txt``."""
    deadline_s: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables in addition to those of a trial."""
    memory_limit: int | None = None
    """Most bytes of the whole process tree."""


@dataclass(frozen=True)
class Ended:
    """Result of a command whose processes have all ended or cannot be killed."""

    exit_code: int | None
    """Exit code; ``None`` if the tuner ended the command, or it never started."""
    seconds: float
    stop: Stop | None = None
    """Reason why the tuner ended the command; ``None`` if it ended by itself or ``hear`` returned true."""
    why: str = ""
    log_tail: str = ""
    quarantined: tuple[int, ...] = ()


class _TimedLines(CappedLog):
    """Capped log that also passes on every complete line as soon as it arrives."""

    def __init__(self, path: Path, clock: Clock, lines: queue.SimpleQueue[OutputLine]) -> None:
        super().__init__(path)
        self._clock = clock
        self._lines = lines
        self._rest = b""

    def write(self, data: bytes) -> None:
        now = self._clock.monotonic()
        *whole, rest = (self._rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            whole, rest = [*whole, rest], b""
        self._rest = rest
        for line in whole:
            self._lines.put(OutputLine(now, line.decode("utf-8", "replace")))
        super().write(data)


def run_command(
    command: BoundedCommand,
    hear: Callable[[OutputLine], bool],
    stop: StopToken,
    *,
    clock: Clock,
    graces: Graces | None = None,
    trouble: Callable[[], tuple[Stop, str] | None] = lambda: None,
) -> Ended:
    """Runs ``command`` to its end, or until ``hear`` returns true for a line, or ``trouble`` returns a reason to stop.

    Ends the processes before it raises an error of ``hear``.
    """
    become_subreaper()
    began = clock.monotonic()
    command.logs.mkdir(parents=True, exist_ok=True)
    lines: queue.SimpleQueue[OutputLine] = queue.SimpleQueue()
    errors = command.logs / "stderr.txt"
    logs = (_TimedLines(command.logs / "stdout.txt", clock, lines), CappedLog(errors))
    try:
        child, pumps = spawn_into(command.argv, command.cwd, command.tag, logs, command.environment)
    except OSError as error:
        why = f"the command could not be started: {error}"
        return Ended(None, clock.monotonic() - began, Stop.NOT_STARTED, why)
    tree = ProcessTree(lambda tag: tag == command.tag, child)
    watchdog = Watchdog(tree, TreeMemory(), command.memory_limit, command.logs / "phase")
    watchdog.start()
    limits = graces or Graces()
    why_stopped: tuple[Stop, str] | None = None
    enough = False
    quarantined: tuple[int, ...] = ()
    try:
        why_stopped, enough = _listen(command, child, tree, watchdog, lines, hear, stop, clock, began, trouble)
    finally:
        code = child.poll()
        quarantined = tree.kill(clock, limits.orphans_s if code is not None else limits.terminate_s, limits.kill_s)
        watchdog.finish()
        for pump in pumps:
            pump.finish()
    while code is not None and not enough and not lines.empty():  # its last words
        enough = hear(lines.get())
    reason, sentence = why_stopped or (None, "")
    return Ended(code, clock.monotonic() - began, reason, sentence, read_tail(errors), quarantined)


def _listen(
    command: BoundedCommand,
    child: subprocess.Popen[bytes],
    tree: ProcessTree,
    watchdog: Watchdog,
    lines: queue.SimpleQueue[OutputLine],
    hear: Callable[[OutputLine], bool],
    stop: StopToken,
    clock: Clock,
    began: float,
    trouble: Callable[[], tuple[Stop, str] | None],
) -> tuple[tuple[Stop, str] | None, bool]:
    """Returns the reason to end the command, if any, and whether ``hear`` returned true."""
    taken = other_load.TakenTime()
    while True:
        ended = child.poll() is not None
        waiting = lines.qsize()
        members = tree.refresh() if waiting else ()
        others = taken.total(sum(one.cpu_ticks for one in members), (one.pid for one in members)) if waiting else None
        for _ in range(waiting):
            if hear(replace(lines.get(), others_s=others)):
                return None, True
        if watchdog.error is not None:
            raise watchdog.error
        if watchdog.over is not None:
            return (Stop.MEMORY, f"the process tree reached {watchdog.over / 2**30:.2f} GiB"), False
        if ended:
            return None, False
        if stop.level:
            return (Stop.CANCELLED, "stopped by the user"), False
        if (why := trouble()) is not None:
            return why, False
        if clock.monotonic() - began >= command.deadline_s:
            return (Stop.DEADLINE, f"not finished after {command.deadline_s:.0f} s"), False
        clock.sleep(0.05)
