"""Shared memory a killed tree leaves is unlinked; a user's data in the same place never is."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.running import proc
from autotune.running.proc import Stat
from autotune.running.process_tree import FOLDER, FULL_EVERY, ProcessTree, Segments, mapped
from tests.contracts.runner_suite import RealClock
from tests.support.not_none import not_none

HOLDER = "import mmap, sys, time; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); print(1, flush=True)"


@pytest.fixture
def segment() -> Iterator[Path]:
    path = FOLDER / f"autotune-test-{os.getpid()}-{time.monotonic_ns()}"
    yield path
    path.unlink(missing_ok=True)


def make(path: Path) -> None:
    path.write_bytes(bytes(4096))


def hold(path: Path) -> tuple[subprocess.Popen[bytes], Stat]:
    """A process that maps it."""
    child = subprocess.Popen([sys.executable, "-c", HOLDER + "; time.sleep(600)", str(path)], stdout=subprocess.PIPE)
    not_none(child.stdout).readline()
    stat = not_none(proc.read_stat(child.pid))
    return child, stat


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    not_none(child.stdout).close()


def test_what_a_dead_process_had_made_is_unlinked(segment: Path) -> None:
    maker = [sys.executable, "-c", f"open(sys.argv[1], 'wb').write(bytes(4096)); {HOLDER}; time.sleep(600)"]
    maker[2] = "import sys; " + maker[2]
    child = subprocess.Popen([*maker, str(segment)], stdout=subprocess.PIPE)
    not_none(child.stdout).readline()
    stat, segments = not_none(proc.read_stat(child.pid)), Segments()
    segments.note([stat])
    end(child)
    assert segments.remove() == (segment.name,)
    assert not segment.exists()


def test_what_a_tree_leaves_whose_processes_were_all_killed_at_once_is_unlinked(segment: Path) -> None:
    """As the kernel does it at a container's limit: no process is there to be looked at when the tree is ended."""
    maker = f"import sys; open(sys.argv[1], 'wb').write(bytes(4096)); {HOLDER}; time.sleep(600)"
    words = [sys.executable, "-c", maker, str(segment)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    not_none(child.stdout).readline()
    tree = ProcessTree(lambda tag: False, child)
    for _ in range(FULL_EVERY):
        tree.refresh()
    end(child)
    assert segment.exists()
    assert tree.kill(RealClock(), 0.1, 1.0) == ()
    assert not segment.exists()


LOCK = """
import multiprocessing, sys, time
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(600)
"""


def test_a_semaphore_whose_process_and_tracker_were_killed_is_unlinked() -> None:
    """What an engine's processes wait for each other by; a tracker that lives would unlink it itself."""
    child = subprocess.Popen([sys.executable, "-c", LOCK], stdout=subprocess.PIPE, start_new_session=True)
    name = "sem." + child.stdout.readline().decode().strip().lstrip("/")
    stat, segments = not_none(proc.read_stat(child.pid)), Segments()
    segments.note([stat])
    os.killpg(child.pid, signal.SIGKILL)
    end(child)
    assert (FOLDER / name).exists()
    assert name in segments.remove()
    assert not (FOLDER / name).exists()


def test_a_users_file_that_was_there_before_is_kept(segment: Path) -> None:
    """A dataset put into memory, which every trial reads."""
    make(segment)
    time.sleep(0.2)
    child, stat = hold(segment)
    segments = Segments()
    assert segment.stat().st_ino in mapped(child.pid)
    segments.note([stat])
    end(child)
    assert segments.remove() == ()
    assert segment.exists()


def test_what_somebody_still_maps_is_kept(segment: Path) -> None:
    own = not_none(proc.read_stat(os.getpid()))
    make(segment)
    with segment.open("r+b") as stream, mmap.mmap(stream.fileno(), 0):
        segments = Segments()
        segments.note([own])
        assert segments.remove() == ()
    assert segment.exists()


def test_a_process_that_is_gone_maps_nothing() -> None:
    assert mapped(2**22 + 1) == set()
