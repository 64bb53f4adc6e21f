"""Ends an agent's trial when the agent is gone: ``python guardian.py`` reads tags from its input until that closes.

A killed agent cannot end its trial itself. Its guardian holds the other end of a pipe, so it notices at once. The
guardian is not a child of the agent, so it survives when the agent's children are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from autotune.machine.clock import SystemClock
from autotune.running.process_tree import ProcessTree

TERMINATE_S, KILL_S = 2.0, 10.0


class Guardian:
    """Starts the guardian and holds the agent's end of its pipe. Create it before ``become_subreaper``."""

    def __init__(self) -> None:
        started = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd="/",
        )
        started.wait()
        assert started.stdin is not None  # noqa: S101  (narrowing)
        self._pipe = started.stdin

    def keep(self, tags: Iterable[str]) -> None:
        """Sets the tags of the processes to end with the agent; a tag that ends in a dash is a prefix.

        Raises:
            OSError: the guardian itself has ended.
        """
        self._pipe.write(json.dumps(list(tags)).encode() + b"\n")
        self._pipe.flush()


def carried(tags: Iterable[str], tag: str) -> bool:
    """Tells whether ``tag`` equals one of ``tags`` or begins with one that ends in a dash."""
    return any(tag == one or (one.endswith("-") and tag.startswith(one)) for one in tags)


def main() -> None:
    """Waits for the end of its input, then ends the processes with the last tags that it read."""
    if os.fork():
        os._exit(0)
    tags: list[str] = []
    for line in sys.stdin:
        tags = json.loads(line)
    if tags:
        left = ProcessTree(lambda tag: carried(tags, tag), None)
        left.refresh(full=True)
        left.kill(SystemClock(), TERMINATE_S, KILL_S)


if __name__ == "__main__":
    main()
