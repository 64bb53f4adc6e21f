"""Scripted studies by a tuner in a process of its own, and what they left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.domain import Configuration, Study, Trial
from autotune.ports import Store
from autotune.store import open_store
from tests.e2e import commands
from tests.e2e.commands import tagged
from tests.e2e.forked import Forked
from tests.e2e.tuner import SPACE, specification
from tests.support.factories import LENGTHS, ROWS
from tests.support.scripted_model import phase_seconds
from tests.support.shared import made_once
from tests.support.waiting import wait_for
from trainer.child.contract import write_atomic

UNDISTURBED = 6
"""Trials of the search of ``undisturbed``."""


class Tuner:
    """Runs of the tuner program on one home."""

    def __init__(self, home: Path, **plan: object) -> None:
        self.home = home
        self.plan = plan

    @classmethod
    def held(
        cls,
        home: Path,
        max_trials: int,
        trial: int,
        cycle: int,
        *,
        warm: bool = False,
        baseline: Mapping[str, object] | None = None,
        **script: object,
    ) -> Tuner:
        """One whose ``trial`` waits before its ``cycle`` until ``let_go``, so that a test meets it there."""
        file = home.with_suffix(".script")
        write_atomic(file, json.dumps({**script, "held": [[trial, cycle]]}))
        return cls(home, max_trials=max_trials, warm=warm, baseline=baseline or {}, script={"file": str(file)})

    def let_go(self) -> None:
        """What else the script says stays."""
        file = self.home.with_suffix(".script")
        write_atomic(file, json.dumps({**json.loads(file.read_text()), "held": []}))

    def start(self) -> Forked:
        process = Forked.tuner([str(self.home), json.dumps(self.plan)])
        commands.end_later(process)
        return process

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

    def wait_for(self, condition: Callable[[tuple[Trial, ...]], bool]) -> None:
        wait_for(lambda: self._meets(condition), "what the tuner had to get to", step=0.05)

    def _meets(self, condition: Callable[[tuple[Trial, ...]], bool]) -> bool:
        if not (self.home / "autotune.sqlite").exists():
            return False
        try:
            return condition(self.study()[1])
        except IndexError:  # the study is not there yet
            return False

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
