"""Commands that go on when the call that began them has ended, so that a long one fits into short calls."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainer.child.contract import write_atomic

ENDING_S = 60.0
PAUSE_S = 0.2


class Running:
    """A command that outlives whoever started it, and the files it leaves.

    Args:
        base: path its files begin with.
        argv: the command.
        folder: where it is run.
    """

    def __init__(self, base: Path, argv: Sequence[str], folder: Path) -> None:
        self._base = base
        self._argv = tuple(argv)
        self._folder = folder

    @property
    def output(self) -> Path:
        return self._base.with_name(self._base.name + ".out")

    @property
    def log(self) -> Path:
        return self._base.with_name(self._base.name + ".log")

    def _file(self, ending: str) -> Path:
        return self._base.with_name(self._base.name + ending)

    def ended(self) -> int | None:
        """Its exit code; ``None`` while it has none."""
        try:
            return int(self._file(".rc").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def alive(self) -> int | None:
        """The process, if it is the one that was started."""
        try:
            number = int(self._file(".pid").read_text())
            words = Path(f"/proc/{number}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError, ValueError):
            return None
        return number if str(self._base).encode() in words else None

    def start(self) -> None:
        """Begin it, in a session of its own."""
        self._base.parent.mkdir(parents=True, exist_ok=True)
        self.forget()
        script = 'trap : INT TERM; "$@" >"$0.out" 2>>"$0.log"; echo $? >"$0.rc.new"; mv "$0.rc.new" "$0.rc"'
        environment = {k: v for k, v in os.environ.items() if k not in ("AUTOTUNE_HOME", "AUTOTUNE_DATABASE")}
        process = subprocess.Popen(
            ("sh", "-c", script, str(self._base), *self._argv),
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        write_atomic(self._file(".pid"), str(process.pid))

    def forget(self) -> None:
        """Let it be run again."""
        self._file(".rc").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it by SIGTERM to all it started, and wait for that."""
        number = self.alive()
        if number is None:
            return
        until = time.monotonic() + ENDING_S
        while self.alive() is not None and time.monotonic() < until:
            with suppress(ProcessLookupError):  # again: what the shell is about to begin does not hear the first
                os.killpg(number, signal.SIGTERM)
            time.sleep(PAUSE_S)
        self.forget()
