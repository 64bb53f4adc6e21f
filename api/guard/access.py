"""Decides, before a port is opened, which address to serve and who may read it."""

from __future__ import annotations

import os
import re
import select
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from api.guard.security import LOOPBACK_NAMES, Access, is_address
from api.listening import is_loopback
from autotune.errors import UsageError

TOKEN_VARIABLE = "AUTOTUNE_TOKEN"  # noqa: S105 - a name
SHORTEST_TOKEN = 22
"""Least number of characters: 128 random bits in base 64."""

PATIENCE_S = 5.0
"""Seconds to wait for a token that is written into a pipe."""
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")

MAKE_ONE = "python3 -c 'import secrets; print(secrets.token_urlsafe(24))'"


def access_for(
    host: str,
    environ: Mapping[str, str],
    token_file: Path | None = None,
    names: Iterable[str] = (),
    *,
    control: bool = False,
) -> Access:
    """Returns the access rules of a server on ``host``; with ``control`` readers may also send requests to its tuners.

    Raises:
        UsageError: the token is missing beyond loopback or with ``control``, too short, or readable by others.
    """
    token = read_token(environ, token_file)
    if control and token is None:
        raise UsageError(
            "--allow-control lets readers stop a study, so a token is needed, on this machine too: put one into "
            f"${TOKEN_VARIABLE} or a file named by --token-file ({MAKE_ONE})"
        )
    given = frozenset(map(_host_name, names))
    if is_loopback(host):
        return Access(token, LOOPBACK_NAMES | given)
    if token is None:
        raise UsageError(
            f"--host {host} can be reached from other machines, so a token is needed: put one into "
            f"${TOKEN_VARIABLE} or a file named by --token-file ({MAKE_ONE})"
        )
    own = {host.lower(), socket.gethostname().lower()}
    return Access(token, LOOPBACK_NAMES | given | own, any_address=True)


def _host_name(name: str) -> str:
    """Returns a host name as in a ``Host`` header. Raises ``UsageError`` for one with a scheme, a port or a ``*``."""
    plain = name.strip().lower()
    bare = plain[1:-1] if plain.startswith("[") and plain.endswith("]") else plain
    if is_address(bare) or _NAME.fullmatch(plain):
        return bare
    raise UsageError(f"--allow-host {name!r} can match no reader: give a host name alone, such as box.example")


def read_token(environ: Mapping[str, str], file: Path | None) -> str | None:
    """Returns the token of the file, else of the environment; ``None`` without one.

    Raises:
        UsageError: the file cannot be used, or the token is too short.
    """
    token, place = environ.get(TOKEN_VARIABLE, "").strip(), f"${TOKEN_VARIABLE}"
    if file is not None:
        token, place = _from_file(file), str(file)
        if not token:
            raise UsageError(f"the token file {file} is empty; {MAKE_ONE} makes a token")
    if not token:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"the token of {place} must be at least {SHORTEST_TOKEN} letters, digits or signs; {MAKE_ONE} makes one"
        )
    return token


def _from_file(file: Path) -> str:
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe nobody writes to would keep us here for ever
        try:
            if os.path.isdir(file):
                raise UsageError(f"the token file {file} is a folder")
            if os.fstat(opened).st_mode & 0o077:
                raise UsageError(f"the token file {file} can be read by others; `chmod 600 {file}` mends that")
            if not select.select([opened], [], [], PATIENCE_S)[0]:
                raise UsageError(f"nothing was written to the token file {file} within {PATIENCE_S:.0f} s")
            return os.read(opened, 4096).decode("utf-8", "replace").strip()
        finally:
            os.close(opened)
    except OSError as error:
        raise UsageError(f"the token file {file} cannot be read ({error.strerror or error})") from None
