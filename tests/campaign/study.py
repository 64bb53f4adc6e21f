"""One study of the campaign: the tuner as a program, what it is told to meet, and what it and its followers said."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from api.client import Client
from autotune.errors import AutotuneError
from autotune.ports import Store
from autotune.store import open_store
from tests.campaign.forked import Forked
from tests.campaign.plans import SPACES, Plan
from tests.e2e.commands import tagged
from tests.support.node import Node
from tests.support.postgresql import Server
from tests.support.trl_trials import ONE_THREAD, build_tiny, training_python

CYCLE_S = 0.04
"""Real seconds of a scripted cycle, so that a fault can come between two."""
LONGEST_S = 900.0
"""A run of the tuner that takes longer hangs."""
DISK = "size=64m,mode=0700"

Act = Callable[[Forked], Sequence[str]]
"""Does something to the running tuner; what it saw go wrong, as sentences."""


@dataclass
class Run:
    """One run of the tuner."""

    code: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    """Its NDJSON."""
    screen: str = ""
    """Stderr, and what is no NDJSON of stdout."""
    wrong: list[str] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    """Names of faults."""
    hung: bool = False
    seconds: float = 0.0
    ended_s: float | None = None
    """Seconds between the last fault and the end."""


class Study(Node):
    """A made-up machine with a study on it."""

    def __init__(self, folder: Path, plan: Plan, server: Callable[[], Server]) -> None:
        super().__init__(folder, [{}] * plan.gpus)
        self.plan = plan
        self.temporary, self.state, self.clock = folder / "tmp", folder / "gpus.json", folder / "clock"
        self.temporary.mkdir()
        self.mark = f"campaign-{folder.name}"
        self.server = server() if plan.database == "postgresql" else None
        self.database = self.server.new_database() if self.server else ""
        self.follower: Follower | None = None
        self.seen: dict[tuple[Any, ...], None] = {}
        """Events and cycles that anybody was told of."""
        self.disk = folder / "disk"
        if plan.small_disk:
            self.disk.mkdir()
            mount("-t", "tmpfs", "-o", DISK, "tmpfs", str(self.disk))
            self.home = self.disk / "home"
        (folder / "space.yaml").write_text(SPACES[plan.space])
        (folder / "pace.json").write_text(json.dumps({"cycle_s": CYCLE_S, "segment": self.mark}))
        if plan.real:
            build_tiny(folder)

    def environment(self, visible: str | None = None) -> dict[str, str]:
        own = {
            "TMPDIR": str(self.temporary),
            "MADE_UP_STATE": str(self.state),
            "MADE_UP_XIDS": str(self.folder / "xids"),
            "MADE_UP_CLOCK": str(self.clock),
            **(ONE_THREAD if self.plan.real else {}),
            **({"AUTOTUNE_DATABASE": self.database} if self.database else {}),
        }
        return {**super().environment(visible), **own}

    def command(self) -> list[str]:
        """``autotune start``, always the same."""
        plan = self.plan
        python = training_python() if plan.real else str(self.python)
        workload = ["--model", str(self.model), "--data", "prompts.jsonl", "--reward", "my_reward.py:score"]
        search = ["--space", "space.yaml", "--sampler", plan.sampler]
        size = ["--effective-batch", "8", "--max-completion-length", "16" if plan.real else "32"]
        size += ["--max-prompt-length", "64"] if plan.real else []
        many = [] if plan.real else ["--gpus", str(2 if plan.space == "split" else 1), "--at-once", str(plan.at_once)]
        ends = ["--max-trials", str(plan.trials), "--grace", f"{plan.grace_s}s"]
        shown = ["--json", "--no-serve", "--home", str(self.home)]
        return ["start", "--python", python, *workload, *search, *size, *many, *ends, *shown]

    def begin(self, words: Sequence[str] = (), errors: str = "stderr") -> Forked:
        """``autotune WORDS``, or ``start``."""
        return Forked(words or self.command(), self.folder, self.environment(), self.folder / errors)

    def run_with(self, acts: Sequence[tuple[int, str, Act]]) -> Run:
        """The tuner to its end; each act ``(records, name, act)`` once it has told of so many records."""
        run, began, waiting = Run(), time.monotonic(), list(acts)
        if self.plan.served and self.follower is None:
            self.follower = Follower(self)
        process = self.begin()
        alarm = threading.Timer(LONGEST_S, self._hangs, [run, process])
        alarm.start()
        records, acted = 0, None
        for line in process.lines():
            records += self._record(run, line)
            while waiting and records >= waiting[0][0] and process.poll() is None:
                _, name, act = waiting.pop(0)
                run.met.append(name)
                acted = time.monotonic()
                try:
                    run.wrong += act(process)
                except OSError as error:
                    run.wrong.append(f"the fault could not be made: {error}")
        run.code = process.wait()
        alarm.cancel()
        run.seconds = time.monotonic() - began
        run.ended_s = None if acted is None else time.monotonic() - acted
        run.screen += process.errors.read_text(errors="replace")
        return run

    def _record(self, run: Run, line: str) -> int:
        """1 for an event or a cycle."""
        try:
            record = json.loads(line)
        except ValueError:  # the last line of a killed one
            run.screen += line
            return 0
        run.records.append(record)
        if record["type"] == "cycle":
            self.seen["cycle", record["trial"], record["attempt"], record["rank"], record["index"]] = None
        if record["type"] == "event":
            self.seen["event", record["id"], record["kind"]] = None
        return int(record["type"] in ("cycle", "event"))

    @staticmethod
    def _hangs(run: Run, process: Forked) -> None:
        run.hung = True
        process.send_signal(signal.SIGKILL)

    def calm(self) -> None:
        """All that was taken away is there again."""
        if self.plan.small_disk:
            mount("-o", "remount,rw", str(self.disk))
        for name in ("model", "prompts.jsonl"):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / f"{name}.away").rename(self.folder / name)
        for file in (self.state, self.clock, self.disk / "filler"):
            file.unlink(missing_ok=True)
        for event in (self.folder / "xids").glob("*"):
            event.rmdir()

    def close_follower(self) -> None:
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    def close(self) -> None:
        self.calm()
        self.close_follower()
        if self.server is not None:
            self.server.drop(self.database)
        if self.plan.small_disk:  # its mount ends here, and what did not hold is to be read
            shutil.copytree(self.home, self.folder / "home", dirs_exist_ok=True)
            subprocess.run(["umount", "-l", str(self.disk)], check=True)

    def store(self) -> Store:
        return open_store(self.database or str(self.home / "autotune.sqlite"), create=False)

    def tagged(self) -> list[int]:
        return tagged(self.home)

    def processes(self) -> list[tuple[int, str]]:
        """(id, command) of everything that runs for this study, but its page's server."""
        found, needle = set(self.tagged()), str(self.folder).encode()
        own = {os.getpid(), self.follower.process.pid if self.follower else 0}
        for entry in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and needle in Path(entry.path, "environ").read_bytes():
                    found.add(int(entry.name))
        return [(pid, words_of(pid)) for pid in sorted(found - own)]


class Follower:
    """``autotune serve`` of the study's home, and a listener that writes down what it is told."""

    def __init__(self, study: Study) -> None:
        self._study, self._over, self.last = study, False, 0
        self._serve()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.process = self._study.begin(["serve", "--port", "0", "--home", str(self._study.home)], "server")
        self._url = self.process.stdout.readline().strip()

    def kill(self) -> None:
        """The server; another one takes its place."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        self._serve()

    def _listen(self) -> None:
        while not self._over:
            with contextlib.suppress(AutotuneError, OSError, ValueError):
                for event in Client(self._url).listen(1, self.last):
                    self.last = event.id
                    self._study.seen["event", event.id, event.kind] = None
            time.sleep(0.2)

    def close(self) -> None:
        self._over = True
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self._thread.join(10)


def words_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
    except OSError:
        return "gone"


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


def cells(study: Study, query: str) -> Iterator[tuple[Any, ...]]:
    """Rows of the database, read past the store."""
    import sqlalchemy  # noqa: PLC0415

    address = study.database.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = sqlalchemy.create_engine(address or f"sqlite:///{study.home / 'autotune.sqlite'}")
    with engine.connect() as connection:
        yield from (tuple(row) for row in connection.execute(sqlalchemy.text(query)))
    engine.dispose()
