"""The processes of one attempt: found by parent, session and tag, and ended together.

Killing the process group is not enough: engines start workers in their own sessions and double-fork. A process belongs
to the tree if its parent is a member, if it is in a member's session, or if its environment has the tag. Orphans become
children of the tuner, a subreaper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from autotune.ports import Clock
from autotune.running import proc
from autotune.running.proc import Stat

FOLDER = Path("/dev/shm")  # noqa: S108  (where the kernel keeps them; nothing is created here)
CLOCKS_S = 0.05
"""Largest difference in seconds between the clocks of files and processes."""


def mapped(pid: int) -> set[int]:
    """Returns the inodes of the segments a process maps; empty for a process that is gone or not readable.

    Inodes, not names: a semaphore is mapped under a temporary name before it is linked under its own.
    """
    try:
        text = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return set()
    return {int(line.split(maxsplit=5)[4]) for line in text.splitlines() if f" {FOLDER}/" in line}


class Segments:
    """Shared memory segments that members of a tree have mapped."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._began = float("inf")

    def note(self, members: Iterable[Stat]) -> None:
        """Records the segments that members map; called before they are killed."""
        for member in members:
            self._seen |= mapped(member.pid)
            self._began = min(self._began, time.time() - member.age_s)

    def remove(self) -> tuple[str, ...]:
        """Removes the tree's segments that no living process maps; returns their names.

        A segment older than the tree belongs to another program and stays.
        """
        left = {entry.name: entry.inode() for entry in self._entries() if self._is_of_tree(entry)}
        self._seen.clear()
        used = _in_use() if left else set()
        gone = sorted(name for name, inode in left.items() if inode not in used)
        for name in gone:
            with contextlib.suppress(OSError):
                (FOLDER / name).unlink()
        return tuple(gone)

    def _entries(self) -> list[os.DirEntry[str]]:
        if not self._seen:
            return []
        with os.scandir(FOLDER) as entries:
            return [entry for entry in entries if entry.inode() in self._seen]

    def _is_of_tree(self, entry: os.DirEntry[str]) -> bool:
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        return stat.st_uid == os.geteuid() and stat.st_ctime >= self._began - CLOCKS_S


def _in_use() -> set[int]:
    used: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            used |= mapped(int(name))
    return used


class Child(Protocol):
    """A started process; ``subprocess.Popen`` satisfies the protocol."""

    @property
    def pid(self) -> int:
        """Process id."""

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; ``None`` while the process runs."""


Send = Callable[[Stat, signal.Signals], None]

PR_SET_CHILD_SUBREAPER = 36
FULL_EVERY = 50
"""Refreshes after which known non-members are examined again: their ids may have been reused."""
YOUNG_S = 1.0
STEP_S = 0.02
BURY_S = 1.0
"""Seconds to reap the last of a tree: a process counts as ended once its first thread has, but gives its exit status
only when the last has."""


def become_subreaper() -> None:
    """Makes this process, instead of init, inherit the orphans of its descendants. Raises ``OSError`` if that fails."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class ProcessTree:
    """A process tree that remembers its members between calls; safe to use from two threads."""

    def __init__(self, carries: Callable[[str], bool], root: Child | None = None, send: Send = proc.send) -> None:
        """Makes a tree.

        Args:
            carries: tells whether a tag is one of this tree's.
            root: child that this process started; ``None`` for a tree of an earlier tuner, or if it is added later.
            send: delivers a signal.
        """
        self._carries = carries
        self._roots: dict[int, Child] = {}
        self._send = send
        self._segments = Segments()
        self._lock = threading.Lock()
        self._members: dict[int, Stat] = {}
        self._strangers: set[int] = set()
        self._ended: dict[int, Stat] = {}
        """Members that ended and were not reaped: their parent is another member until that ends too."""
        self._sessions: set[int] = set()
        """Sessions of the tree at the last refresh; an ended process shows only its session, no longer its
        environment."""
        self._refreshes = 0
        self._oldest = 0
        self._spared = _own_line()
        if root is not None:
            self.add(root)

    def add(self, root: Child) -> None:
        """Adds one more child of this process to the tree."""
        with self._lock:
            self._roots[root.pid] = root
            if (stat := proc.read_stat(root.pid)) is not None:
                self._members[root.pid] = stat
                self._oldest = min(self._oldest or stat.started, stat.started)

    def refresh(self, full: bool = False) -> tuple[Stat, ...]:
        """Returns the living members. ``full`` examines every process again."""
        with self._lock:
            self._refreshes += 1
            full = full or self._refreshes % FULL_EVERY == 0
            if full:
                self._strangers.clear()
            pids = set(proc.list_pids())
            self._strangers &= pids
            self._bury()
            self._members = self._survivors()
            known = self._strangers | self._members.keys() | self._ended.keys() | self._spared
            self._adopt(sorted(pids - known))
            if full:  # nobody tells what they mapped if all are killed at once, as by a container's limit
                self._segments.note(self._members.values())
            return tuple(self._members.values())

    def _survivors(self) -> dict[int, Stat]:
        alive = {}
        for pid, known in self._members.items():
            now = proc.read_stat(pid)
            if now is None or now.started != known.started:
                continue
            if now.ended:
                self._reap(now)
            else:
                alive[pid] = now
        return alive

    def _adopt(self, pids: list[int]) -> None:
        """Adds those of ``pids`` that belong to the tree, repeatedly: a member may be listed after its child."""
        waiting = [stat for pid in pids if (stat := proc.read_stat(pid)) is not None]
        known = self._sessions | self._roots.keys() | {m.session for m in self._members.values()}
        sessions = {session for session in known if self._owns(session)}
        grew = True
        while grew:
            grew = False
            for seen in waiting:
                if seen.pid in self._members or not self._is_ours(seen, sessions):
                    continue
                stat = proc.read_stat(seen.pid)  # again: it may have left a session of others since
                if stat is None or stat.started != seen.started:
                    continue
                if stat.ended:
                    self._reap(stat)
                    continue
                self._members[stat.pid] = stat
                grew = True
                if self._owns(stat.session):
                    sessions.add(stat.session)
        self._sessions = sessions
        # the young are looked at again: in the middle of exec their tag cannot be seen
        ours = self._members.keys() | self._ended.keys()
        self._strangers |= {s.pid for s in waiting if s.pid not in ours and s.age_s > YOUNG_S}

    def _owns(self, session: int) -> bool:
        """Tells whether a session belongs to the tree: its leader is a member, or was before it ended.

        A session's id alone proves nothing: a child is in its starter's session until it has its own.
        """
        if session in (0, os.getsid(0)):
            return False
        leader = proc.read_stat(session)
        if leader is None or session in self._members:
            return True
        return leader.ended and leader.started >= self._oldest

    def _is_ours(self, stat: Stat, sessions: set[int]) -> bool:
        if stat.started < self._oldest:
            return False
        if stat.parent in self._members or stat.session in sessions or _was_adopted(stat):
            return True
        tag = proc.read_tag(stat.pid)
        return tag is not None and self._carries(tag)

    def _reap(self, stat: Stat) -> None:
        """Collects the exit status of an adopted orphan; for a root, ``Popen`` does.

        Other children of this process are not members, and keep their status for the code that started them.
        """
        if stat.pid in self._roots:
            self._roots[stat.pid].poll()
            return
        if stat.parent == os.getpid():
            try:
                reaped = os.waitpid(stat.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                reaped = True
            if reaped:
                return
        self._ended[stat.pid] = stat

    def _bury(self) -> None:
        """Reaps members that became children of this process and have ended."""
        for pid, known in tuple(self._ended.items()):
            del self._ended[pid]
            now = proc.read_stat(pid)
            if now is not None and now.started == known.started:
                self._reap(now)

    def signal(self, number: signal.Signals) -> tuple[Stat, ...]:
        """Signals every member after a full refresh; returns the members."""
        members = self.refresh(full=True)
        for member in members:
            self._send(member, number)
        return members

    def kill(self, clock: Clock, grace_s: float, patience_s: float) -> tuple[int, ...]:
        """Ends every member: SIGTERM, ``grace_s`` seconds to exit, then SIGKILL for up to ``patience_s`` seconds.

        Removes their shared memory. Returns the processes that still exist, usually in an uninterruptible kernel call.
        """
        if grace_s > 0 and self.signal(signal.SIGTERM):
            self.wait(clock, grace_s)
        end = clock.monotonic() + patience_s
        while members := self.signal(signal.SIGKILL):
            if clock.monotonic() >= end:
                return tuple(sorted(m.pid for m in members))
            clock.sleep(STEP_S)
        self._last_rites(clock)
        with self._lock:
            self._segments.remove()
        return ()

    def _last_rites(self, clock: Clock) -> None:
        """Reaps the last member's ended children, because no later refresh would."""
        end = clock.monotonic() + BURY_S
        while True:
            with self._lock:
                self._bury()
                ours = any(stat.parent == os.getpid() for stat in self._ended.values())
            if not ours or clock.monotonic() >= end:
                return
            clock.sleep(STEP_S)

    def wait(self, clock: Clock, seconds: float) -> bool:
        """Waits until no member is left; returns ``False`` if ``seconds`` were not enough."""
        end = clock.monotonic() + seconds
        while self.refresh():
            if clock.monotonic() >= end:
                return False
            clock.sleep(STEP_S)
        return True


def _was_adopted(stat: Stat) -> bool:
    """Tells whether a process has ended as a child of this process that another one started.

    Processes that this process starts are in its session, or lead their own; no process joins a session of another. An
    orphan that led its own session cannot be recognised.
    """
    return stat.ended and stat.parent == os.getpid() and stat.session not in (os.getsid(0), stat.pid)


def _own_line() -> set[int]:
    """Returns the ids of this process and its ancestors, which are never killed."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and (stat := proc.read_stat(pid)) is not None:
        line.add(pid)
        pid = stat.parent
    return line
