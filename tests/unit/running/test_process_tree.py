from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.running import proc
from autotune.running.process_tree import ProcessTree, become_subreaper
from tests.contracts.runner_suite import RealClock
from tests.support.not_none import not_none
from tests.support.waiting import PATIENCE_S, wait_for
from trainer.child.contract import TAG_VARIABLE

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = started({TAG_VARIABLE: "unit:1"})
    yield child
    child.kill()
    child.wait()


def started(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A sleeper that is one already: in the middle of exec a process shows no environment yet."""
    child = subprocess.Popen(SLEEPER, env=environment, start_new_session=True)
    wait_for(lambda: b"time" in Path(f"/proc/{child.pid}/cmdline").read_bytes(), "its exec", step=0.001)
    return child


def test_a_stat_line_is_read_whatever_the_process_is_called(tmp_path: Path) -> None:
    odd = tmp_path / "a ) (b 1 2"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([odd, "60"])
    try:
        stat = not_none(proc.read_stat(child.pid))
        assert (stat.pid, stat.parent, stat.ended) == (child.pid, os.getpid(), False)
    finally:
        child.kill()
        child.wait()
    assert proc.read_stat(child.pid) is None


def test_a_tag_is_found_first_last_or_not_at_all() -> None:
    for environment, expected in [
        ({TAG_VARIABLE: "x"}, "x"),
        ({"A": "1", TAG_VARIABLE: "y:z"}, "y:z"),
        ({f"NOT_{TAG_VARIABLE}": "x"}, None),
        ({"A": f"{TAG_VARIABLE}=x"}, None),
        ({}, None),
    ]:
        child = started(environment)
        assert proc.read_tag(child.pid) == expected
        child.kill()
        child.wait()


def test_proportional_memory_is_at_most_the_resident(sleeper: subprocess.Popen[bytes]) -> None:
    exact = not_none(proc.read_proportional(sleeper.pid))
    assert 0 < exact <= proc.read_resident(sleeper.pid)[0] + (1 << 20)
    assert proc.read_proportional(2**22 + 1) is None
    assert proc.read_resident(2**22 + 1) == (0, 0)


def test_a_signal_goes_to_the_process_meant_and_not_to_its_successor(sleeper: subprocess.Popen[bytes]) -> None:
    stat = not_none(proc.read_stat(sleeper.pid))
    earlier = proc.Stat(stat.pid, stat.parent, stat.session, stat.state, stat.started - 1, 0)
    proc.send(earlier, signal.SIGKILL)
    proc.send(stat, signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGTERM, "had the first reached it, it would have ended by that"


def test_a_handler_is_seen(sleeper: subprocess.Popen[bytes]) -> None:
    assert not proc.catches(sleeper.pid, signal.SIGUSR1)
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        assert proc.catches(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_tree_without_a_root_is_found_by_its_tag(sleeper: subprocess.Popen[bytes]) -> None:
    tree = ProcessTree(lambda tag: tag == "unit:1", None)
    assert [m.pid for m in tree.refresh()] == [sleeper.pid]
    other = ProcessTree(lambda tag: tag == "unit:2", None)
    assert other.refresh() == ()
    assert other.kill(RealClock(), 0.1, 0.1) == ()
    assert sleeper.poll() is None


def test_a_process_with_an_older_start_is_not_claimed_by_its_session() -> None:
    """A session number of the tree may once be given to a stranger, but never to one that was there before."""
    become_subreaper()
    older = subprocess.Popen(SLEEPER, env={}, start_new_session=True)
    time.sleep(0.05)
    younger = subprocess.Popen(SLEEPER, env={}, start_new_session=True)
    try:
        tree = ProcessTree(lambda tag: False, younger)
        assert [m.pid for m in tree.refresh(full=True)] == [younger.pid]
        assert tree.kill(RealClock(), PATIENCE_S, PATIENCE_S) == ()
        assert older.poll() is None
        assert younger.returncode == -signal.SIGTERM
    finally:
        for child in (older, younger):
            child.kill()
            child.wait()


def test_a_process_met_in_the_middle_of_exec_is_looked_at_again(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment is empty for a moment, as if it carried no tag."""
    tree = ProcessTree(lambda tag: tag == "unit:1", None)
    with monkeypatch.context() as patched:
        patched.setattr(proc, "read_tag", lambda pid: None)
        assert tree.refresh() == ()
    assert [m.pid for m in tree.refresh()] == [sleeper.pid]


def test_a_session_is_not_the_trees_because_a_member_was_seen_in_it(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen before its ``setsid`` and recognised by its tag after it, a child must not condemn its starter's session."""
    bystander = subprocess.Popen(SLEEPER, env={}, start_new_session=True)
    real = proc.read_stat
    looks: list[int] = []

    def early(pid: int) -> proc.Stat | None:
        stat = real(pid)
        looks.append(pid)
        if stat is not None and pid == sleeper.pid and looks.count(pid) == 1:
            return replace(stat, session=bystander.pid)
        return stat

    monkeypatch.setattr(proc, "read_stat", early)
    try:
        tree = ProcessTree(lambda tag: tag == "unit:1", None)
        assert [m.pid for m in tree.refresh()] == [sleeper.pid]
        assert [m.pid for m in tree.refresh(full=True)] == [sleeper.pid]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_living_session_of_others_is_never_the_trees(sleeper: subprocess.Popen[bytes]) -> None:
    bystander = subprocess.Popen(SLEEPER, env={}, start_new_session=True)
    try:
        tree = ProcessTree(lambda tag: tag == "unit:1", None)
        tree.refresh()
        assert tree._owns(sleeper.pid)
        assert not tree._owns(bystander.pid)
        assert not tree._owns(os.getsid(0))
    finally:
        bystander.kill()
        bystander.wait()


def test_what_the_tuner_descends_from_is_never_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it carried the tag, as it would for a tuner started from inside a trial."""
    line = [os.getpid(), os.getppid()]
    monkeypatch.setattr(proc, "read_tag", lambda pid: "everything" if pid in line else None)
    found = {m.pid for m in ProcessTree(lambda tag: True, None).refresh(full=True)}
    assert not found & set(line)


CARELESS = """
import os, sys, time
if os.fork() == 0:  # a rank, in a session of its own
    os.setsid()
    helper = os.fork()
    if helper == 0:
        if sys.argv[1] == "own":
            os.setsid()
        os._exit(0)
    print(helper, flush=True)
time.sleep(600)
"""


def _ended(pid: int) -> bool:
    stat = proc.read_stat(pid)
    return stat is not None and stat.ended


def _until_ended(pid: int) -> None:
    wait_for(lambda: _ended(pid), f"the end of {pid}", step=0.001)


@pytest.mark.parametrize("session", ["own", "the rank's"])
def test_a_helper_nobody_waited_for_does_not_stay_as_a_zombie(session: str) -> None:
    """It ends under a rank, which is the tree's; with the rank it comes to this process, ended and without a tag."""
    become_subreaper()
    argv = [sys.executable, "-S", "-c", CARELESS, session]
    root = subprocess.Popen(argv, env={TAG_VARIABLE: "unit:3"}, start_new_session=True, stdout=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(7)"])
    try:
        helper = int(not_none(root.stdout).readline())
        for pid in (helper, other.pid):
            _until_ended(pid)
        tree = ProcessTree(lambda tag: tag == "unit:3", root)
        assert len(tree.refresh()) == 2
        assert tree.kill(RealClock(), PATIENCE_S, PATIENCE_S) == ()
        assert proc.read_stat(helper) is None
        assert root.returncode == -signal.SIGTERM
        assert other.wait() == 7, "the status of a child of ours is not taken"
    finally:
        root.kill()
        root.communicate()
        other.wait()


def test_an_orphan_that_ended_before_anybody_looked_is_reaped_and_no_child_of_ours() -> None:
    become_subreaper()
    argv = [sys.executable, "-S", "-c", CARELESS, "the rank's"]
    root = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE)
    failing = [sys.executable, "-S", "-c", "raise SystemExit(7)"]
    others = [subprocess.Popen(failing, start_new_session=apart) for apart in (True, False)]
    helper = int(not_none(root.stdout).readline())
    for pid in (helper, *(other.pid for other in others)):
        _until_ended(pid)
    stat = not_none(proc.read_stat(helper))
    rank = stat.parent
    os.kill(rank, signal.SIGKILL)
    root.kill()
    root.communicate()
    _until_ended(rank)
    try:
        assert ProcessTree(lambda tag: False).refresh(full=True) == ()
        assert proc.read_stat(helper) is None
        assert [other.wait() for other in others] == [7, 7]
    finally:
        os.waitpid(rank, 0)


EXIT = {"x86_64": 60, "aarch64": 93}.get(os.uname().machine)
"""The system call that ends one thread alone."""


@pytest.mark.skipif(EXIT is None, reason="the number of a system call is not known here")
def test_a_process_whose_first_thread_ended_is_reaped_when_the_last_has() -> None:
    """It counts as ended before: until then it has no exit status to give."""
    become_subreaper()
    code = (
        "import ctypes, os, sys, threading, time\n"
        "if os.fork():\n"
        "    os._exit(0)\n"
        "os.setsid()\n"
        "print(os.getpid(), flush=True)\n"
        "sys.stdin.readline()\n"
        "threading.Thread(target=time.sleep, args=(0.6,)).start()\n"
        f"ctypes.CDLL(None).syscall({EXIT}, 0)\n"
    )
    argv, pipe = [sys.executable, "-c", code], subprocess.PIPE
    root = subprocess.Popen(argv, env={TAG_VARIABLE: "unit:4"}, stdin=pipe, stdout=pipe)
    orphan = int(not_none(root.stdout).readline())
    tree = ProcessTree(lambda tag: tag == "unit:4", root)
    tree.refresh()
    root.stdin.write(b"\n")
    root.stdin.flush()
    _until_ended(orphan)
    try:
        tree.kill(RealClock(), 0.0, PATIENCE_S)
        assert proc.read_stat(orphan) is None
    finally:
        root.communicate()
