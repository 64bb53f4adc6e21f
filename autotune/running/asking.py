"""Reads a child's report, and makes a hanging child write its stacks."""

from __future__ import annotations

import signal

from autotune.ports import Clock
from autotune.running import proc
from autotune.running.process_tree import ProcessTree
from trainer.child.contract import ContractError, Result, RunPaths, read_result


def report_of(paths: RunPaths) -> tuple[Result | None, str]:
    """The child's ``result.json``, and the error if the file cannot be read."""
    try:
        return read_result(paths.result), ""
    except FileNotFoundError:
        return None, ""
    except (ContractError, OSError) as error:
        return None, f"its result cannot be read: {error}"


def ask_for_stacks(tree: ProcessTree, clock: Clock, wait_s: float) -> None:
    """Sends SIGUSR1 to the processes that registered faulthandler, so that they write their stacks to the log within
    ``wait_s``."""
    asked = [m for m in tree.refresh() if proc.catches(m.pid, signal.SIGUSR1)]
    for member in asked:
        proc.send(member, signal.SIGUSR1)
    if asked:
        clock.sleep(wait_s)
