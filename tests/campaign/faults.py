"""What can happen to a running study. Each fault comes once the tuner has told of a number of records."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.cli import exit_codes
from autotune.errors import MachineError, StoreError, UsageError
from tests.campaign.forked import Forked
from tests.campaign.plans import Plan
from tests.campaign.study import Study, mount, words_of

AWAY_S = 1.5
LOCKED_S = 3.0
SLOW_S = 3.0
BUSY_S = 30.0
Act = Callable[[Study, Forked, random.Random], Sequence[str] | None]


@dataclass(frozen=True)
class Fault:
    """One kind."""

    name: str
    act: Act
    """Does it; returns what it saw go wrong, as sentences."""
    codes: frozenset[int] = frozenset({0})
    """Exit codes of the tuner that are right after it, beside those of a study that has ended."""
    suits: Callable[[Plan], bool] = lambda plan: True
    before: bool = False
    """It is there when the tuner begins, and does not come in the middle."""
    alone: bool = False
    """One guard of the product alone stands against it."""


def _signals(*numbers: signal.Signals) -> Act:
    def act(study: Study, process: Forked, rng: random.Random) -> None:
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)

    return act


def _notice_to_all(study: Study, process: Forked, rng: random.Random) -> None:
    """As a scheduler does that signals every process, the trial's first."""
    for pid in (*study.tagged(), process.pid):
        _send(pid, signal.SIGTERM)


def _to_a_child(number: signal.Signals, what: str = "") -> Act:
    def act(study: Study, process: Forked, rng: random.Random) -> None:
        found = [pid for pid in sorted(study.tagged()) if what in words_of(pid)]
        if found:
            _send(rng.choice(found), number)

    return act


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _freeze(study: Study, process: Forked, rng: random.Random) -> None:
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.0)
    process.send_signal(signal.SIGCONT)


def _second_tuner(study: Study, process: Forked, rng: random.Random) -> list[str]:
    """The same command once more, beside the first."""
    second = study.begin(errors="second")
    second.lines()
    code, said = second.wait(600), second.errors.read_text()
    if code == MachineError.exit_code and "is being run by" in said:
        return []
    if study.state.exists() and code == UsageError.exit_code and "visible" in said:
        return []  # a GPU is away, so that the command asks for more than there are
    ended = process.poll() is not None  # the first was through before the second began
    return [] if ended else [f"a second tuner ended with {code}: {said[-300:]}"]


def _kill_page(study: Study, process: Forked, rng: random.Random) -> None:
    if study.follower is not None:
        study.follower.kill()


def _lock(study: Study, process: Forked, rng: random.Random) -> None:
    """Another program writes to the database for a while."""
    with closing(sqlite3.connect(study.home / "autotune.sqlite", isolation_level=None, timeout=30.0)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_S)
        other.execute("ROLLBACK")


def _replace(study: Study, process: Forked, rng: random.Random) -> None:
    """A copy of this moment takes the database's place, with a log of its own, as of somebody who restores a backup.

    Without the log its absence would be noticed, whatever is known of the file.
    """
    path = study.home / "autotune.sqlite"
    copy = path.with_name("copy.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30.0)) as database:
        database.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path)) as reader, closing(sqlite3.connect(copy)) as into:
            reader.backup(into)
        copy.replace(path)
        for left in ("-wal", "-shm"):
            path.with_name(path.name + left).unlink(missing_ok=True)
        path.with_name(path.name + "-wal").touch()


def _fill(study: Study, process: Forked, rng: random.Random) -> None:
    """The disk is full for a while, or until the tuner has ended."""
    with open(study.disk / "filler", "wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(1 << 16))
    _while_running(process, 4 * AWAY_S)
    (study.disk / "filler").unlink()


def _read_only(study: Study, process: Forked, rng: random.Random) -> None:
    """Once nothing that ran before holds a file there open: until then the kernel answers that the disk is busy."""
    end = time.monotonic() + BUSY_S
    while not mount("-o", "remount,ro", str(study.disk)):
        if time.monotonic() > end:
            raise OSError(f"{study.disk} could not be made read-only within {BUSY_S:g} s")
        time.sleep(0.1)


def _away(name: str) -> Act:
    def act(study: Study, process: Forked, rng: random.Random) -> None:
        there, away = study.folder / name, study.folder / f"{name}.away"
        there.rename(away)
        _while_running(process, AWAY_S)
        away.rename(there)

    return act


def _while_running(process: Forked, seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)


def _write(file: Path, text: str) -> None:
    """Whole at once: the tuner's made-up library reads it at any moment."""
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(text)
    partial.replace(file)


def _clock_back(study: Study, process: Forked, rng: random.Random) -> None:
    _write(study.clock, str(-rng.choice([60, 3600, 10**6])))


def _no_logs(study: Study, process: Forked, rng: random.Random) -> None:
    for log in study.home.glob("runs/*/*/*/*.txt"):
        log.unlink(missing_ok=True)
    shutil.rmtree(study.home / "logs", ignore_errors=True)


def _xid(*codes: int) -> Act:
    def act(study: Study, process: Forked, rng: random.Random) -> None:
        (study.folder / "xids" / f"{rng.randrange(study.plan.gpus)}-{rng.choice(codes)}").mkdir(parents=True)

    return act


def _gpu(most_s: float | None = None, **state: object) -> Act:
    """One GPU changes, for a while or until the tuner has ended."""

    def act(study: Study, process: Forked, rng: random.Random) -> None:
        _write(study.state, json.dumps({str(rng.randrange(study.plan.gpus)): state}))
        if most_s is not None:
            _while_running(process, most_s)
            study.state.unlink()

    return act


def _slow_driver(study: Study, process: Forked, rng: random.Random) -> None:
    _write(study.state, json.dumps({"slow": SLOW_S}))
    _while_running(process, 2 * SLOW_S)
    study.state.unlink()


def _no_database(study: Study, process: Forked, rng: random.Random) -> None:
    study.server.stop("immediate")
    time.sleep(AWAY_S)
    study.server.start()


def _scripted(plan: Plan) -> bool:
    return not plan.real


def _sqlite(plan: Plan) -> bool:
    return plan.database == "sqlite"


AGAIN, MACHINE = frozenset({exit_codes.RUN_AGAIN}), frozenset({0, MachineError.exit_code})
INTERRUPTED = frozenset({exit_codes.INTERRUPTED})
FAULTS = (
    Fault("SIGKILL to the tuner", _signals(signal.SIGKILL), frozenset({-signal.SIGKILL}), alone=True),
    Fault("SIGTERM", _signals(signal.SIGTERM), AGAIN),
    Fault("SIGUSR1", _signals(signal.SIGUSR1), AGAIN),
    Fault("SIGTERM to all", _notice_to_all, AGAIN),
    Fault("Ctrl-C", _signals(signal.SIGINT), INTERRUPTED),
    Fault("Ctrl-C twice", _signals(signal.SIGINT, signal.SIGINT), INTERRUPTED),
    Fault("SIGHUP", _signals(signal.SIGHUP), frozenset({exit_codes.SIGNAL + signal.SIGHUP})),
    Fault("tuner frozen", _freeze),
    Fault("SIGKILL to a child", _to_a_child(signal.SIGKILL)),
    Fault("SIGTERM to a child", _to_a_child(signal.SIGTERM)),
    Fault("SIGKILL to a rollout server", _to_a_child(signal.SIGKILL, "vllm"), suits=lambda p: p.space == "split"),
    Fault("SIGKILL to the page's server", _kill_page, suits=lambda p: p.served),
    Fault("second tuner", _second_tuner, alone=True),
    Fault("database locked", _lock, suits=_sqlite),
    Fault("database replaced", _replace, frozenset({StoreError.exit_code}), suits=_sqlite, alone=True),
    Fault("database server away", _no_database, suits=lambda p: p.database == "postgresql"),
    Fault("disk full", _fill, MACHINE | {StoreError.exit_code}, suits=lambda p: p.small_disk),
    Fault("disk read-only", _read_only, frozenset({UsageError.exit_code}), lambda p: p.small_disk, before=True),
    Fault("prompts away", _away("prompts.jsonl"), MACHINE),
    Fault("model away", _away("model"), MACHINE),
    Fault("clock back", _clock_back),
    Fault("logs removed", _no_logs),
    Fault("XID that lasts", _xid(79, 95, 119), MACHINE, _scripted),
    Fault("XID that passes", _xid(48, 94), MACHINE, _scripted),
    Fault("memory errors", _gpu(ecc=2), MACHINE, _scripted),
    Fault("GPU lost", _gpu(lost=True), MACHINE, _scripted),
    Fault("memory taken", _gpu(4.0, used=40 << 30), MACHINE, _scripted),
    Fault("slow driver", _slow_driver, MACHINE, _scripted),
)
