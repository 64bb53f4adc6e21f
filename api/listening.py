"""Opens a listening socket: the given port, or the next free one."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

from autotune.errors import UsageError

DEFAULT_PORT = 7788
TRIED_PORTS = 20
LARGEST_PORT = 65535
UNREAD_BYTES = 1 << 16
"""Size of a connection's send buffer in bytes (the kernel doubles this). With the default of megabytes, a stream's hung
reader would be noticed only when they are full."""
UNREAD_MS = 40_000
"""Milliseconds with a full send buffer after which the kernel ends the connection; above ``security.SLOWEST_S``."""


def listen(host: str, port: int | None) -> socket.socket:
    """Opens a socket that listens at once, so that readers of the address can connect.

    Args:
        host: a name or an address of this machine.
        port: this port, or any free one for 0; ``None``: ``DEFAULT_PORT`` or the next free one.

    Raises:
        UsageError: the port is in use, or the host is not this machine.
    """
    if port is not None:
        return _bound(host, port)
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + TRIED_PORTS):
        try:
            return _bound(host, candidate)
        except PortInUseError:
            continue
    return _bound(host, 0)


def url_of(listening: socket.socket, host: str) -> str:
    """Returns the URL, such as ``http://127.0.0.1:7788``; for a socket on all addresses with this machine's name."""
    port = listening.getsockname()[1]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        return f"http://{socket.gethostname()}:{port}"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Tells whether only this machine reaches the host; of names, only ``localhost`` counts."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class PortInUseError(UsageError):
    """Raised if another program listens on the port."""


def _bound(host: str, port: int) -> socket.socket:
    family, address = _resolved(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _prepare_connections(listening)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} is in use by another program; name another with --port, or leave it out for a free one"
            ) from None
        raise UsageError(f"cannot listen on {host} port {port} ({error.strerror or error})") from None
    return listening


def _prepare_connections(listening: socket.socket) -> None:
    """Sets the options that accepted connections inherit.

    asyncio turns Nagle's algorithm off only if the socket names its protocol. With Nagle's algorithm, an answer's
    second packet waits for the reader's delayed acknowledgement: 40 ms for each answer on a persistent connection.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    if not 0 <= port <= LARGEST_PORT:
        raise UsageError(f"port {port} does not exist; name one from 1 to {LARGEST_PORT}, or 0 for any free one")
    if host.lower() == "localhost":
        host = "127.0.0.1"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UsageError(f"host {host!r} is not known; name an address of this machine, such as 127.0.0.1") from None
    return family, address
