"""Scripted studies by a tuner in a process of its own, and what they left."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.domain import Configuration, Study, Trial
from autotune.ports import Store
from autotune.store import open_store
from tests.e2e.commands import tagged
from tests.e2e.tuner import SPACE, specification
from tests.factories import LENGTHS, ROWS
from tests.scripted_model import phase_seconds
from tests.shared import made_once

ROOT = Path(__file__).parents[2]
UNDISTURBED = 6
"""Trials of the search of ``undisturbed``."""


class Tuner:
    """Runs of the tuner program on one home."""

    def __init__(self, home: Path, **plan: object) -> None:
        self.home = home
        self.plan = plan
        self.process: subprocess.Popen[str] | None = None

    @classmethod
    def slow(
        cls,
        home: Path,
        max_trials: int,
        *,
        warm: bool = False,
        baseline: Mapping[str, object] | None = None,
        **script: object,
    ) -> Tuner:
        """One whose cycles take time until ``hurry``, so that a test can meet a trial in its middle."""
        file = home.with_suffix(".script")
        file.write_text(json.dumps(script))
        return cls(home, max_trials=max_trials, warm=warm, baseline=baseline or {}, script={"file": str(file)})

    def hurry(self) -> None:
        """From the next trial on nothing is waited for; what else the script says stays."""
        file = self.home.with_suffix(".script")
        file.write_text(json.dumps({**json.loads(file.read_text()), "sleep": 0.0}))

    def start(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tests.e2e.tuner", str(self.home), json.dumps(self.plan)]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self.process

    def finish(self, timeout: float = 280.0) -> dict[str, object]:
        process = self.start()
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        return json.loads(out.splitlines()[-1])  # type: ignore[no-any-return]

    def store(self) -> Store:
        return open_store(self.home / "autotune.sqlite")

    def study(self) -> tuple[Study, tuple[Trial, ...]]:
        store = self.store()
        try:
            study = store.studies()[0]
            return study, store.trials(study.id)
        finally:
            store.close()

    def wait_for(self, condition: Callable[[tuple[Trial, ...]], bool], timeout: float = 120.0) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if (self.home / "autotune.sqlite").exists():
                try:
                    if condition(self.study()[1]):
                        return
                except IndexError:
                    pass
            time.sleep(0.05)
        raise AssertionError("the tuner did not get there")

    def tagged(self) -> list[int]:
        return tagged(self.home)


def fastest(**fixed: object) -> dict[str, object]:
    """The fastest combination of the space with these values.

    As the baseline nothing beats it, so that a study ends without confirming: for tests of something else.
    """
    spec = specification({}, {}, None)
    every = SPACE.candidates(spec.baseline, spec.resources, same_learning=False)
    found = [c for c in every if all(c[name] == value for name, value in fixed.items())]
    return dict(min(found, key=_seconds))


def _seconds(configuration: Configuration) -> float:
    return sum(phase_seconds(configuration, ROWS, LENGTHS, 40).values())


def undisturbed() -> Tuner:
    """One study from beginning to end that nothing happened to, to compare with; only to be read.

    It is always the same, so all tests share it.
    """
    home = made_once("undisturbed", lambda at: Tuner(at, max_trials=UNDISTURBED).finish())
    return Tuner(home, max_trials=UNDISTURBED)
