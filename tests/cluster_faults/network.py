"""A network of its own for one node of a cluster on this machine, which can be cut: a network namespace, for root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NET = f"10.213.{1 + os.getpid() % 250}"
"""Of this process, so that two of them can run beside each other."""
NEAR, FAR = f"{NET}.1", f"{NET}.2"


class Network:
    """Two ends of a cable: ``NEAR`` is here, ``FAR`` in the namespace."""

    def __init__(self) -> None:
        self.name = f"far{os.getpid()}"
        self._ours, self._theirs = f"n{os.getpid()}", f"f{os.getpid()}"

    def lay(self) -> None:
        """Raises ``OSError`` or ``CalledProcessError`` where none can be had."""
        ip("netns", "add", self.name)
        ip("link", "add", self._ours, "type", "veth", "peer", "name", self._theirs)
        ip("link", "set", self._theirs, "netns", self.name)
        ip("addr", "add", f"{NEAR}/24", "dev", self._ours)
        ip("link", "set", self._ours, "up")
        ip("-n", self.name, "addr", "add", f"{FAR}/24", "dev", self._theirs)
        ip("-n", self.name, "link", "set", "lo", "up")
        self.mend()

    def cut(self) -> None:
        """Nothing gets through any more, and nobody is told: connections hang."""
        ip("-n", self.name, "link", "set", self._theirs, "down")

    def mend(self) -> None:
        ip("-n", self.name, "link", "set", self._theirs, "up")

    def inside(self, *words: str) -> list[str]:
        """The command that runs ``words`` there."""
        return ["ip", "netns", "exec", self.name, *words]

    def remove(self) -> None:
        for words in (("netns", "del", self.name), ("link", "del", self._ours)):
            subprocess.run(["ip", *words], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def network() -> Iterator[Network | None]:
    """``None`` where there are no namespaces to be had, which needs root."""
    made = Network()
    try:
        try:
            made.lay()
        except (OSError, subprocess.CalledProcessError):
            yield None
        else:
            yield made
    finally:
        made.remove()
