"""Starts one process of a trial: in its own session, with the tag, its output in a capped log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from autotune.running.launch import child_environment
from autotune.running.log import CappedLog, LogPump
from autotune.running.process_tree import Child


class Spawn(Protocol):
    """Protocol of functions that start a trial's process; ``spawn`` is one."""

    def __call__(
        self, argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
    ) -> tuple[Child, LogPump]: ...


def spawn(
    argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], LogPump]:
    """Starts the process; returns it with the running pump that fills ``log``. Closes ``log`` if that fails.

    Args:
        environment: variables added to those of every trial.

    Raises:
        OSError: the process could not be started.
    """
    child, (pump,) = spawn_into(argv, cwd, tag, (log,), environment)
    return child, pump


def spawn_into(
    argv: Sequence[str], cwd: Path, tag: str, logs: Sequence[CappedLog], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], list[LogPump]]:
    """Starts a process as ``spawn``; standard output goes to the first of ``logs``, standard error to the last."""
    pipes = [os.pipe() for _ in logs]
    try:
        child = subprocess.Popen(
            argv, cwd=cwd, env={**child_environment(os.environ, tag), **environment}, stdin=subprocess.DEVNULL,
            stdout=pipes[0][1], stderr=pipes[-1][1], start_new_session=True,
        )  # fmt: skip
    except OSError:
        for (reading, _), log in zip(pipes, logs, strict=True):
            os.close(reading)
            log.close()
        raise
    finally:
        for _, writing in pipes:
            os.close(writing)
    pumps = [LogPump(reading, log) for (reading, _), log in zip(pipes, logs, strict=True)]
    for pump in pumps:
        pump.start()
    return child, pumps
