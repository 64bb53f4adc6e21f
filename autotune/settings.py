"""Settings of this process, read once from the environment: the home folder and the database.

A database address may hold a password, so it is never shown as given.
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
"""User and password at the start of an address without its scheme."""
_SECRET_OPTION = re.compile(r"(?:^|[?&;\s])\w*(?:password|passwd|secret|token)\w*\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class HomePaths:
    """Paths below ``$AUTOTUNE_HOME``. Reading them creates nothing."""

    root: Path

    @property
    def database(self) -> Path:
        """SQLite file that is used if no database is named."""
        return self.root / "autotune.sqlite"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def models(self) -> Path:
        """Folder of prepared models, which outlive studies."""
        return self.root / "models"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def crashes(self) -> Path:
        """Folder of tracebacks of unexpected errors, one file each."""
        return self.root / "crashes"

    def study(self, study_id: int, name: str) -> Path:
        """Returns the folder of a study's runs and exported files."""
        slug = _UNSAFE.sub("-", name).strip("-.")[:48]
        return self.runs / (f"{study_id}-{slug}" if slug else str(study_id))

    def attempt(self, study_id: int, name: str, trial: int, attempt: int) -> Path:
        """Returns the folder of one attempt at a trial (``RunPaths`` names the files in it)."""
        return self.study(study_id, name) / str(trial) / str(attempt)

    def workers(self, study_id: int, name: str) -> Path:
        """Returns the folder of messages to and from a study's warm workers."""
        return self.study(study_id, name) / "workers"

    def crash_file(self) -> Path:
        """Returns the path of a new crash file, unique by second and process."""
        return self.crashes / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"

    def prepare(self) -> None:
        """Creates the home folder, readable by its owner only, and tests that it can be written.

        Raises:
            UsageError: the folder cannot be created or written; the sentence gives the reason.
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
    """Settings from the environment, ``--home`` and ``--database``."""

    home: HomePaths
    database: str = field(repr=False)
    """Path or URL of the database, as ``open_store`` takes it; never shown, because a URL may hold a password."""
    debug: bool = False

    @property
    def database_shown(self) -> str:
        """Database address without user, password and options, for people."""
        return shown(self.database)

    @property
    def database_is_absent(self) -> bool:
        """True if the database is a SQLite file that does not exist."""
        return "://" not in self.database and not Path(os.path.expanduser(self.database)).exists()

    @property
    def database_file(self) -> DatabaseFile | None:
        """Identity of the SQLite file at the database's path; ``None`` if there is no file."""
        try:
            found = os.stat(os.path.expanduser(self.database))
        except OSError:  # a URL is no path either
            return None
        return found.st_dev, found.st_ino

    @property
    def own_database(self) -> bool:
        """True if the database is the file in the home folder, not one that the user named."""
        return self.database == str(self.home.database)


def read_settings(
    environ: Mapping[str, str] | None = None, home: Path | None = None, database: str | None = None
) -> Settings:
    """Reads the settings of this process; ``home`` and ``database`` take precedence over the environment.

    Raises:
        UsageError: ``home`` is not a readable folder, or ``database`` holds a password.
    """
    values = os.environ if environ is None else environ
    paths = HomePaths(_home_root(values, home))
    if os.path.lexists(paths.root) and not (paths.root.is_dir() and os.access(paths.root, os.R_OK | os.X_OK)):
        raise UsageError(f"the home {paths.root} is no folder that you may read; set {HOME_VARIABLE} or --home to one")
    named = _without_password(database or "") or values.get(DATABASE_VARIABLE, "").strip()
    return Settings(
        home=paths,
        database=named or str(paths.database),
        debug=values.get(DEBUG_VARIABLE, "") not in ("", "0"),
    )


def shown(database: str) -> str:
    """Returns a database's path, or its URL without user, password and options."""
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
