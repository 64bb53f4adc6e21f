"""Finds the process that listens at a port of this machine's loopback, by ``/proc``."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

PROC = Path("/proc")
LISTENS = "0A"
_ADDRESSES = (
    frozenset({"0100007F", "0000000000000000FFFF00000100007F"}),  # 127.0.0.1
    frozenset({"00000000"}),  # any
    frozenset({"0" * 32}),  # any of IPv6, which may be any of IPv4 too
)
"""Where a connection to 127.0.0.1 arrives; the kernel takes the first of them that somebody listens at."""


def listeners(port: int) -> frozenset[str]:
    """The sockets a connection to ``port`` may arrive at: several, if their owners agreed to share it."""
    found = [(address, inode) for address, at, inode in _listening() if at == port]
    kinds = (frozenset(inode for address, inode in found if address in kind) for kind in _ADDRESSES)
    return next((kind for kind in kinds if kind), frozenset())


def strangers_at(port: int, pids: Collection[int]) -> bool:
    """Whether a connection to ``port`` may arrive at a process that is none of ``pids``."""
    there = listeners(port)
    return bool(there) and not there <= {inode for pid in pids for inode in _sockets(pid)}


def is_free(port: int) -> bool:
    """Whether a server may take ``port`` as if nobody had before: no connection of it is left, open or closed."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


def _listening() -> Iterator[tuple[str, int, str]]:
    """(Address as the kernel writes it, port, inode) of each socket that listens."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / name).read_text().splitlines()
        except OSError:  # a machine without IPv6
            continue
        for words in map(str.split, lines[1:]):
            address, _, port = words[1].partition(":")
            if words[3] == LISTENS:
                yield address, int(port, 16), words[9]


def _sockets(pid: int) -> Iterator[str]:
    """Inodes of the sockets that a process holds; none if it is gone."""
    folder = PROC / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(folder / name)
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
