"""Keeps a rollout server beside a command that is not a trial."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.errors import MachineError
from autotune.ports import Clock, ServerLaunch, StopToken
from autotune.running.companion import RunningServer
from autotune.running.job import Graces
from autotune.running.process_tree import ProcessTree, become_subreaper
from trainer.child.contract import RunPaths

STEP_S = 0.05


@contextmanager
def server_beside(
    launch: ServerLaunch, folder: Path, tag: str, stop: StopToken, *, clock: Clock, graces: Graces | None = None
) -> Iterator[RunningServer]:
    """The server, ready, for the block's time; none of its processes is left, however the block ends.

    A stop that is asked for while the server starts enters the block, whose command is told of it too.

    Args:
        folder: for its log and its working directory.
        tag: of its processes, by which a later tuner finds them.

    Raises:
        MachineError: it cannot be started, or ends, or is not ready in time; a sentence with its log's place.
    """
    become_subreaper()
    paths, limits = RunPaths(folder), graces or Graces()
    paths.scratch.mkdir(parents=True, exist_ok=True)
    try:
        server = RunningServer(launch, paths, tag, clock)
    except OSError as error:
        raise MachineError(f"the rollout server could not be started: {error}") from None
    tree = ProcessTree(lambda found: found == tag, server.child)
    try:
        while not server.greet(tree) and stop.level == 0:
            trouble = server.trouble()
            if trouble is not None:
                raise MachineError(f"{trouble[1]}; its output is in {paths.server_log}")
            clock.sleep(STEP_S)
        yield server
    finally:
        tree.kill(clock, limits.terminate_s, limits.kill_s)
        server.finish()
