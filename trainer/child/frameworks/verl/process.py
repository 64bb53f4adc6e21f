"""Runs verl's own entry point as a process, and extracts the cause of a failure from its output."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Deque, List, Mapping, Optional, Sequence

from ...contract import SIGNS, Nearness, Phase, read_log

EXIT_S = 30.0
"""Seconds for Ray's shutdown after the last step."""
LAST_WORDS_S = 1.0
"""Ray's daemons may hold the output open when verl has ended."""
LINES = 2000
CHUNK = 1 << 16
_COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^(?:\([^()]*\bpid=[^()]*\)\s*)+")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt|Value)(?::|\(|$)")
_ECHO = re.compile(r"RayTaskError|ActorDiedError|WorkerCrashedError")
_PLACES = (
    (re.compile(r"update_actor|train_mini_batch"), Phase.UPDATE),
    (re.compile(r"compute_(?:old_|ref_)?log_prob"), Phase.LOGPROB),
    (re.compile(r"update_weights"), Phase.SYNC),
    (re.compile(r"generate_sequences"), Phase.GENERATE),
)
"""Function of verl in a traceback -> phase."""


class VerlFailedError(Exception):
    """verl ended before the trial was done; the message has its exit status and the line with the cause."""


class Verl:
    """One run of ``python -m verl.trainer.main_ppo``; its output goes to this process's own."""

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            list(argv),
            cwd=str(folder),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._lines: Deque[str] = deque(maxlen=LINES)
        self._listener = threading.Thread(target=self._listen, name="autotune-verl", daemon=True)
        self._listener.start()

    @property
    def status(self) -> Optional[int]:
        """Exit status, negative for a signal; ``None`` while verl runs."""
        return self._child.poll()

    def _listen(self) -> None:
        assert self._child.stdout is not None  # noqa: S101  (narrowing; it is a pipe)
        reading, rest = self._child.stdout.fileno(), b""
        while data := os.read(reading, CHUNK):
            *whole, rest = (rest + _COLOUR.sub(b"", data)).split(b"\n")
            if len(rest) > CHUNK:
                whole, rest = [*whole, rest], b""
            self._pass_on(whole)
        self._pass_on([rest] if rest else [])

    def _pass_on(self, lines: List[bytes]) -> None:
        for line in lines:
            self._lines.append(line.decode("utf-8", "replace").rpartition("\r")[2])
        with contextlib.suppress(OSError):
            sys.stdout.write("".join(line.decode("utf-8", "replace") + "\n" for line in lines))
            sys.stdout.flush()

    def last_lines(self) -> str:
        """Returns the last lines of the output; after the end, up to the last."""
        if self.status is not None:
            self._listener.join(LAST_WORDS_S)
        return "\n".join(list(self._lines))

    def wait(self, seconds: float) -> bool:
        """Waits at most ``seconds`` for the end; tells whether verl has ended."""
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Ends verl and its Ray, by a kill if needed; the tuner sweeps other processes that verl started."""
        if self.status is None:
            self._child.terminate()
            if not self.wait(5.0):
                self._child.kill()
                self._child.wait()
        self._listener.join(LAST_WORDS_S)


def failure(status: int, output: str) -> VerlFailedError:
    """Returns the exception for a run of verl that ended by itself."""
    if status < 0:
        # As launchers write it, so that the tuner asks the kernel whether this was for want of memory.
        ended = "verl was ended by a signal (exitcode: %d)" % status
    else:
        ended = "verl ended with exit code %d" % status
    line = telling(output)
    return VerlFailedError("%s: %s" % (ended, line) if line else "%s and told no reason" % ended)


def telling(output: str) -> str:
    """Returns the line with the cause, without Ray's prefix: a known error text, else the last exception."""
    reading = read_log(output, SIGNS)
    if reading is not None and reading.sign.nearness is Nearness.CAUSE:
        return _PREFIX.sub("", reading.line)
    lines = [_PREFIX.sub("", line.strip()) for line in output.splitlines()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    own = [line for line in raised if not _ECHO.search(line)]
    return (own or raised or [""])[-1][:400]


def place(output: str) -> Optional[Phase]:
    """Returns the phase of verl's function in the last traceback of the output; ``None`` without one."""
    traced = output.rpartition("Traceback (most recent call last)")
    if not traced[1]:
        return None
    found = [(match.start(), phase) for pattern, phase in _PLACES for match in pattern.finditer(traced[2])]
    return max(found)[1] if found else None


def make_sockets(folder: Path) -> None:
    """Makes Ray's socket folder, empty and accessible to this user alone.

    Raises OSError if another user has a folder of that name.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise
        shutil.rmtree(str(folder))
        folder.mkdir(mode=0o700)
