"""Namespaces of the kernel as a container has them: no root, no name, little shared memory, one folder to write in."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

USER = 12345
"""Nobody's number."""
INSIDE = """
mount -t tmpfs -o size=64m,mode=1777 tmpfs /dev/shm
mount --bind "$0" "$0"
mount -o remount,bind,ro /
cd "$0"
exec unshare --user --map-user={user} --map-group={user} "$@"
"""


@functools.cache
def available() -> bool:
    """Whether this machine lets its users make namespaces."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs",
         "tmpfs", "/dev/shm"],
        check=False, capture_output=True, timeout=60,
    )  # fmt: skip
    return tried.returncode == 0


def run(folder: Path, words: Sequence[str], environ: Mapping[str, str], timeout: float) -> CompletedProcess[str]:
    """``words``, to their end, in such a place; ``folder`` is what can be written."""
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc"]
    return subprocess.run(
        [*namespaces, "sh", "-ec", INSIDE.format(user=USER), str(folder), *words],
        check=False,
        env={"PATH": environ.get("PATH", ""), **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
