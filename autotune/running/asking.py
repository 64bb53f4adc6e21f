"""What a child is asked for at its end: its report, and where it hangs."""

from __future__ import annotations

import signal

from autotune.ports import Clock
from autotune.running import proc
from autotune.running.process_tree import ProcessTree
from trainer.child.contract import ContractError, Result, RunPaths, read_result


def report_of(paths: RunPaths) -> tuple[Result | None, str]:
    """(the child's report, why it cannot be read)."""
    try:
        return read_result(paths.result), ""
    except FileNotFoundError:
        return None, ""
    except (ContractError, OSError) as error:
        return None, f"its result cannot be read: {error}"


def ask_for_stacks(tree: ProcessTree, clock: Clock, wait_s: float) -> None:
    """Processes that registered faulthandler for SIGUSR1 write their stacks to the log; they have ``wait_s`` for it."""
    asked = [m for m in tree.refresh() if proc.catches(m.pid, signal.SIGUSR1)]
    for member in asked:
        proc.send(member, signal.SIGUSR1)
    if asked:
        clock.sleep(wait_s)
