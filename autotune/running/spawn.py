"""Starts one process of a trial: in its own session, with the tag, its output in a capped log."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from autotune.running.child import Child
from autotune.running.environment import child_environment
from autotune.running.log import CappedLog, LogPump


class Spawn(Protocol):
    """Protocol of functions that start a trial's process; ``spawn`` is one."""

    def __call__(
        self, argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
    ) -> tuple[Child, LogPump]: ...


def spawn(
    argv: Sequence[str], cwd: Path, tag: str, log: CappedLog, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], LogPump]:
    """The process, and the running pump that fills ``log``, which is closed if there is none.

    Args:
        environment: on top of what a trial sees.

    Raises:
        OSError: the process could not be started.
    """
    output, input_ = os.pipe()
    try:
        child = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**child_environment(os.environ, tag), **environment},
            stdin=subprocess.DEVNULL,
            stdout=input_,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        os.close(output)
        log.close()
        raise
    finally:
        os.close(input_)
    pump = LogPump(output, log)
    pump.start()
    return child, pump
