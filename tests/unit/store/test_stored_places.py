"""A folder where locks do not lock, or on a network, is refused with advice before anything is made in it."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.doctor.findings import Verdict
from autotune.cli.doctor.place_checks import check_home
from autotune.errors import UnfitDatabaseError
from autotune.settings import HomePaths, read_settings
from autotune.store import open_store, sqlite
from autotune.store.sqlite import check_place
from autotune.wiring import check_store
from tests.support.waiting import PATIENCE_S

Patch = pytest.MonkeyPatch


def _always(*_: Any) -> int:
    """A lock that everybody gets."""
    return 0


def _fails(number: int) -> Callable[..., Any]:
    def lock(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return lock


FAKED = {
    "flock given to everybody": (("flock", _always), "can be locked again"),
    "flock is not there": (("flock", _fails(errno.ENOSYS)), "cannot be locked (Function not implemented)"),
    "no lock server": (("flock", _fails(errno.ENOLCK)), "cannot be locked (No locks available)"),
    "SQLite's locks given to everybody": (("fcntl", _always), "can be locked again"),
    "SQLite's locks are not there": (("lockf", _fails(errno.ENOLCK)), "cannot be locked (No locks available)"),
}


@pytest.mark.parametrize("case", FAKED)
def test_a_home_whose_locks_do_nothing_is_refused(tmp_path: Path, monkeypatch: Patch, case: str) -> None:
    (name, faked), said = FAKED[case]
    folder = tmp_path / "made"
    monkeypatch.setattr(fcntl, name, faked)
    with pytest.raises(UnfitDatabaseError) as caught:
        open_store(folder / "studies.db")
    message = str(caught.value)
    assert said in message
    assert str(folder / "studies.db") in message
    assert "PostgreSQL" in message
    assert "--home" in message
    assert list(tmp_path.iterdir()) == []
    assert caught.value.exit_code == 2


def test_the_locks_of_this_machine_pass_and_leave_nothing(tmp_path: Path) -> None:
    check_place(tmp_path / "studies.db")
    assert list(tmp_path.iterdir()) == []


def test_a_system_that_cannot_be_asked_about_sqlites_locks_passes(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", _fails(errno.EINVAL))
    check_place(tmp_path / "studies.db")


MOUNTS = """\
/dev/root / ext4 rw 0 0
server:/export {0}/net nfs4 rw,vers=4.2 0 0
//server/share {0}/a\\040share cifs rw 0 0
tmpfs {0}/net/local tmpfs rw 0 0
o2ib:/scratch {0}/scratch lustre rw,flock 0 0
overlay {0}/over overlay rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: Patch) -> Path:
    table = tmp_path / "mounts"
    table.write_text(MOUNTS.format(tmp_path))
    monkeypatch.setattr(sqlite, "MOUNTS", table)
    return tmp_path


@pytest.mark.parametrize(("at", "named"), [("net/home", "NFS"), ("a share/home", "SMB")])
def test_a_network_is_refused_by_name(mounts: Path, at: str, named: str) -> None:
    """Its locks lock here; SQLite's log would still not be safe."""
    file = mounts / at / "autotune.sqlite"
    (mounts / at).parent.mkdir()
    with pytest.raises(UnfitDatabaseError, match=named) as caught:
        open_store(file)
    assert str(file) in str(caught.value)
    assert "PostgreSQL" in str(caught.value)
    assert not (mounts / at).exists()


@pytest.mark.parametrize("at", ["net/local/home", "scratch/home", "over/home", "network/home"])
def test_others_are_judged_by_their_locks_alone(mounts: Path, monkeypatch: Patch, at: str) -> None:
    (mounts / at).mkdir(parents=True)
    check_place(mounts / at / "autotune.sqlite")
    monkeypatch.setattr(fcntl, "flock", _always)
    with pytest.raises(UnfitDatabaseError, match="locked again"):
        check_place(mounts / at / "autotune.sqlite")


def test_it_is_said_before_a_preparation_that_takes_long_and_by_doctor(mounts: Path) -> None:
    (mounts / "net").mkdir()
    settings = read_settings(environ={}, home=mounts / "net" / "home")
    with pytest.raises(UnfitDatabaseError, match="NFS"):
        check_store(settings)
    found = check_home(settings)
    assert found.verdict is Verdict.PROBLEM
    assert "AUTOTUNE_HOME" in found.command


def test_a_server_is_no_file(mounts: Path) -> None:
    """With PostgreSQL a home may lie on a network."""
    (mounts / "net").mkdir()
    environ = {"AUTOTUNE_DATABASE": "postgresql://localhost/x", "AUTOTUNE_HOME": str(mounts / "net")}
    settings = read_settings(environ=environ)
    check_store(settings)
    assert check_home(settings).verdict is Verdict.OK
    assert HomePaths(mounts / "net") == settings.home


OVERLAY = """
set -e
mkdir lower upper work merged
mount -t tmpfs tmpfs upper || exit 77
mkdir upper/up upper/work
mount -t overlay overlay -o lowerdir=lower,upperdir=upper/up,workdir=upper/work merged || exit 77
exec "$@"
"""
CHECK = """
import sys
from pathlib import Path
from autotune.store.sqlite import check_place, mount_of
file = Path(sys.argv[1]).absolute() / "autotune.sqlite"
print(mount_of(file.parent).kind)
check_place(file)
from autotune.store import open_store
open_store(file).close()
print(file.is_file())
"""


def test_a_real_overlay_is_accepted(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", OVERLAY, "sh"),
            *(sys.executable, "-c", CHECK, "merged"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no overlay can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["overlay", "True"]
