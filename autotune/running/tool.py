"""Runs short commands in the training interpreter, such as ``probe`` and ``prepare``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.domain import FailureReason
from autotune.ports import Clock
from autotune.running import launch
from autotune.running.ending import REASONS, Ending, ended_by_reward, exit_sentence
from autotune.running.job import Graces, Job
from autotune.running.local import CHILD_START, TOOL, study_tag, tool_owner
from autotune.running.supervisor import Supervisor
from trainer.child.contract import CurrentPhase, Record, Result, RunPaths, dumps, write_atomic

NO_PYTHON = "it ended without an answer, as no Python does"
_OF_PYTHON = re.compile(r'Traceback|File "|Python|shared librar')
"""Matches output of a Python that ended without an answer, or of a failed load; other programs lack such text."""
KNOWN_FILES = ("config", "metrics", "result", "phase", "log", "memory")


class _Listener:
    """Watcher that ignores all messages."""

    enough: bool | None = None

    def record(self, record: Record) -> None:
        """Ignores records."""

    def phase(self, phase: CurrentPhase) -> None:
        """Ignores phases."""

    def tick(self) -> None:
        """Ignores ticks."""


class _GoOn:
    level = 0


def run_tool(
    python: str,
    command: str,
    directory: Path,
    payload: Mapping[str, Any],
    timeout: float,
    *,
    clock: Clock,
    home: str = "",
    start: Path = CHILD_START,
    graces: Graces | None = None,
) -> Result:
    """Runs a child command (``probe``, ``prepare``) under the same supervision as a trial.

    Args:
        directory: folder for its files; those of an earlier command are replaced.
        payload: plain JSON, written to ``config.json``.
        timeout: time limit in seconds.
        clock: measures ``timeout``.
        home, start, graces: as in ``LocalRunner``.

    Returns:
        The child's own result; without one, a result made from its exit.
    """
    paths = RunPaths(directory.resolve())
    for name in KNOWN_FILES:  # of an earlier command, whose result is not this one's
        getattr(paths, name).unlink(missing_ok=True)
    write_atomic(paths.config, dumps(payload))
    job = Job(
        argv=(python, str(start), command, "--directory", str(paths.root)), paths=paths, deadline_s=timeout,
        environment=launch.caches(paths.scratch, os.environ),  # torch leaves a folder at its import
        tag=f"{study_tag(home, TOOL)}{tool_owner()}:0",
    )  # fmt: skip
    ending = Supervisor(clock, graces or Graces()).run(job, _Listener(), _GoOn())
    return _result_of(ending, payload)


def _result_of(ending: Ending, payload: Mapping[str, Any]) -> Result:
    if ending.result is not None:
        return ending.result
    if ended_by_reward(ending):
        names = (" in ".join(filter(None, (each.get("name"), each.get("path")))) for each in payload["rewards"])
        message = f"the reward {' or '.join(names)} ended the process that called it ({exit_sentence(ending)})"
        return Result(False, FailureReason.REWARD_ERROR, message=message)
    detail = "\n".join(ending.log_tail.splitlines()[-20:])
    if _no_python(ending):
        return Result(False, FailureReason.CRASH, message=f"{NO_PYTHON} ({exit_sentence(ending)})", detail=detail)
    if ending.stop in REASONS:
        return Result(False, REASONS[ending.stop], message=ending.why, detail=detail)
    return Result(False, FailureReason.CRASH, message=exit_sentence(ending), detail=detail)


def _no_python(ending: Ending) -> bool:
    """Tells whether the program ended by itself without a sign of Python."""
    silent = ending.stop is None and ending.phase is None and not ending.result_error
    return silent and (ending.exit_code or 0) >= 0 and not _OF_PYTHON.search(ending.log_tail)
