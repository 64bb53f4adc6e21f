"""Finds the processes that listen at a port of this machine's loopback."""

from __future__ import annotations

import socket
from collections.abc import Collection

import psutil

_ADDRESSES = (("127.0.0.1", "::ffff:127.0.0.1"), ("0.0.0.0",), ("::",))  # noqa: S104 - looked for, not bound
"""Addresses at which a connection to 127.0.0.1 arrives; the kernel takes the first that has a listener."""


def listeners(port: int) -> tuple[int | None, ...]:
    """Returns the processes that a connection to ``port`` may reach: several if they share it; ``None`` for one that
    may not be inspected."""
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    found = [(c.laddr.ip, c.pid) for c in listening if c.laddr and c.laddr.port == port]
    return next(filter(None, (tuple(pid for ip, pid in found if ip in kind) for kind in _ADDRESSES)), ())


def strangers_at(port: int, pids: Collection[int]) -> bool:
    """Tells whether a connection to ``port`` may reach a process that is not in ``pids``."""
    return any(pid not in pids for pid in listeners(port))


def is_free(port: int) -> bool:
    """Tells whether a server may take ``port``: no connection of it is left, open or closed."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True
