"""The environment, read once: where everything is kept. (``NO_COLOR`` is honoured by rich itself.)

A database address may hold a password, so none is ever shown as it was given.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_data_path

from autotune.errors import UsageError

DatabaseFile = tuple[int, int]
"""Device and inode of a SQLite file."""

HOME_VARIABLE = "AUTOTUNE_HOME"
DATABASE_VARIABLE = "AUTOTUNE_DATABASE"
DEBUG_VARIABLE = "AUTOTUNE_DEBUG"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_USER = re.compile(r"[^:/@]*(:[^@]*)?@")
"""User and password at the start of what follows ``://``."""
_SECRET_OPTION = re.compile(r"(?:^|[?&;\s])\w*(?:password|passwd|secret|token)\w*\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class HomePaths:
    """Every path below ``$AUTOTUNE_HOME``, in one place. Reading paths creates nothing."""

    root: Path

    @property
    def database(self) -> Path:
        """The SQLite file used when no database URL is given."""
        return self.root / "autotune.sqlite"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def models(self) -> Path:
        """Prepared models, kept between studies."""
        return self.root / "models"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def crashes(self) -> Path:
        """Tracebacks of unexpected errors, one file each."""
        return self.root / "crashes"

    def study(self, study_id: int, name: str) -> Path:
        """Folder of a study's runs and exported files."""
        slug = _UNSAFE.sub("-", name).strip("-.")[:48]
        return self.runs / (f"{study_id}-{slug}" if slug else str(study_id))

    def attempt(self, study_id: int, name: str, trial: int, attempt: int) -> Path:
        """Folder of one attempt at one trial (``RunPaths`` names the files in it)."""
        return self.study(study_id, name) / str(trial) / str(attempt)

    def workers(self, study_id: int, name: str) -> Path:
        """Mailboxes of a study's warm workers, while they live."""
        return self.study(study_id, name) / "workers"

    def crash_file(self) -> Path:
        """A file name no earlier crash of another process or second has."""
        return self.crashes / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"

    def prepare(self) -> None:
        """Create the home (readable by its owner only) and prove that it can be written.

        Raises:
            UsageError: with one sentence saying what stands in the way.
        """
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"the home folder {self.root} cannot be written ({reason}); "
                f"set {HOME_VARIABLE} or --home to a folder you can write to"
            ) from None


@dataclass(frozen=True)
class Settings:
    """Settings from the environment and ``--home``."""

    home: HomePaths
    database: str = field(repr=False)
    """A path or a database URL, as ``open_store`` takes it; a URL may hold a password, so it is never shown."""
    debug: bool = False

    @property
    def database_shown(self) -> str:
        """The database as people may see it: without user, password and options."""
        return shown(self.database)

    @property
    def database_is_absent(self) -> bool:
        """Whether the database is a SQLite file that does not exist."""
        return "://" not in self.database and not Path(os.path.expanduser(self.database)).exists()

    @property
    def database_file(self) -> DatabaseFile | None:
        """The SQLite file that the database's path names now; ``None`` if there is none."""
        try:
            found = os.stat(os.path.expanduser(self.database))
        except OSError:  # a URL is no path either
            return None
        return found.st_dev, found.st_ino

    @property
    def own_database(self) -> bool:
        """Whether the database is the file in the home, not one named by ``--database`` or the environment."""
        return self.database == str(self.home.database)


def read_settings(
    environ: Mapping[str, str] | None = None, home: Path | None = None, database: str | None = None
) -> Settings:
    """The settings of this process; ``--home`` and ``--database`` go before the environment.

    Raises:
        UsageError: the home cannot be a folder, or ``database`` holds a password.
    """
    values = os.environ if environ is None else environ
    paths = HomePaths(_home_root(values, home))
    if paths.root.exists() and not paths.root.is_dir():
        raise UsageError(f"the home {paths.root} is not a folder; set {HOME_VARIABLE} or --home to one")
    named = _without_password(database or "") or values.get(DATABASE_VARIABLE, "").strip()
    return Settings(
        home=paths,
        database=named or str(paths.database),
        debug=values.get(DEBUG_VARIABLE, "") not in ("", "0"),
    )


def shown(database: str) -> str:
    """A database's path, or its URL without user, password and options."""
    scheme, sign, rest = database.partition("://")
    if not sign or scheme.startswith("sqlite"):
        return database
    user = _USER.match(rest)
    rest = rest[user.end() :] if user else rest
    # Another @ is a piece of a password that should have been written %40.
    return f"{scheme}://***" if "@" in rest else f"{scheme}://{re.split('[?#]', rest, maxsplit=1)[0]}"


def _without_password(database: str) -> str:
    user = _USER.match(database.partition("://")[2])
    if (user is not None and user.group(1)) or _SECRET_OPTION.search(database):
        raise UsageError(
            "--database holds a password, which everyone on this machine can read in the list of processes; "
            f"leave it out and give it by PGPASSWORD or ~/.pgpass, or give the whole address by {DATABASE_VARIABLE}"
        )
    return database.strip()


def _home_root(values: Mapping[str, str], home: Path | None) -> Path:
    named = str(home) if home is not None else values.get(HOME_VARIABLE, "").strip()
    if not named:
        try:
            return user_data_path("autotune", appauthor=False)
        except RuntimeError:
            raise UsageError(f"no home folder is known: set HOME, or {HOME_VARIABLE} or --home to a folder") from None
    try:
        return Path(os.path.abspath(Path(named).expanduser()))
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"the home {named!r} is not a usable path: {error}") from None
