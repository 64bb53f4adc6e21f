"""Ends an agent's trial when the agent is gone: ``python guardian.py``, told tags on its input until that closes.

An agent that is killed ends nothing any more. Its guardian holds the other end of a pipe, so it notices at once, and it
is no child of the agent, so that whoever ends the agent's children leaves it alone.
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
    """The agent's end of the pipe. It must be made before the agent takes in orphans (``become_subreaper``)."""

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
        """Sets the tags of processes to end with the agent; a tag with a dash at the end is a prefix.

        Raises:
            OSError: the guardian itself is gone.
        """
        self._pipe.write(json.dumps(list(tags)).encode() + b"\n")
        self._pipe.flush()


def carried(tags: Iterable[str], tag: str) -> bool:
    """Whether a process with ``tag`` is one of those."""
    return any(tag == one or (one.endswith("-") and tag.startswith(one)) for one in tags)


def main() -> None:
    """Waits for the end of its input, then ends what it was told last."""
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
