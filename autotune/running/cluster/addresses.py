"""Whether a Ray cluster can be at an address: asked with a socket, because Ray itself waits for minutes."""

from __future__ import annotations

import os
import socket

PATIENCE_S = 5.0
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of HTTP/2 says first, with empty settings (RFC 9113, 3.4): Ray's head speaks gRPC."""
SETTINGS = 4
"""Type of the frame that a server answers with; the fourth byte of its head."""


def fault(address: str) -> str | None:
    """Why ``HOST:PORT`` is no cluster's address; ``None`` if a gRPC server answers there."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return "expected HOST:PORT, or auto"
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), PATIENCE_S) as asking:
            return None if _encrypted() or _is_grpc(asking) else "what listens there is no Ray cluster"
    except socket.gaierror:
        return f"the name {host} is not known here"
    except TimeoutError:
        return f"nothing answers there within {PATIENCE_S:.0f} s"
    except OSError as error:
        return f"nothing answers there: {error.strerror or error}"


def _is_grpc(asking: socket.socket) -> bool:
    try:
        asking.sendall(HELLO)
        head = asking.recv(9, socket.MSG_WAITALL)
    except ConnectionError:
        return False
    return len(head) == len(HELLO[-9:]) and head[3] == SETTINGS


def _encrypted() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
