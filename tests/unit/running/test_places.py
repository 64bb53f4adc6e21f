"""Two local runners side by side on real processes: each has its own CPUs, and none of the other's processes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.machine.lanes import CPUS_VARIABLE, Lane
from autotune.study.crews import SideBySide
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import TAG_VARIABLE

CPUS = sorted(os.sched_getaffinity(0))


class Looking:
    """A watcher that looks at the children of this process while they run: by trial, their CPUs."""

    enough = None

    def __init__(self) -> None:
        self.seen: dict[str, set[tuple[tuple[int, ...], str]]] = {}
        self.most = 0

    def record(self, record: Any) -> None:
        alive = set()
        for child in psutil.Process().children():
            try:
                environment, cpus = child.environ(), tuple(child.cpu_affinity())
            except psutil.Error:
                continue
            if tag := environment.get(TAG_VARIABLE):
                alive.add(tag)
                self.seen.setdefault(tag, set()).add((cpus, environment[CPUS_VARIABLE]))
        self.most = max(self.most, len(alive))

    def phase(self, phase: Any) -> None: ...

    def tick(self) -> None: ...


@pytest.mark.skipif(len(CPUS) < 2, reason="two trials need two CPUs")
def test_trials_side_by_side_have_cpus_and_processes_of_their_own(tmp_path: Path) -> None:
    lanes = [Lane(place, (), (CPUS[place],), None) for place in range(2)]
    crew = SideBySide([(lane.name, local_runner("places", lane=lane)) for lane in lanes], FakeStop())
    watcher = Looking()
    for place in range(2):
        given = assignment(tmp_path / str(place), {"sleep": 0.3})
        crew.start(place, replace(given, trial=replace(given.trial, number=place)), watcher)
    reports = {}
    for _ in range(int(PATIENCE_S)):
        reports.update(crew.wait(1.0))
        if len(reports) == 2:
            break
    assert [reports[place].outcome.ok for place in range(2)] == [True, True]
    assert watcher.most == 2
    assert sorted(seen for found in watcher.seen.values() for seen in found) == [
        ((CPUS[place],), str(CPUS[place])) for place in range(2)
    ]
    assert os.sched_getaffinity(0) == set(CPUS), "the tuner itself keeps all of them"
    assert crew.close() == ()


def test_a_trial_alone_is_told_which_cpus_of_a_shared_machine_it_may_use(tmp_path: Path) -> None:
    watcher = Looking()
    try:
        os.sched_setaffinity(0, CPUS[:1])
        local_runner("places").run(assignment(tmp_path / "0", {"sleep": 0.3}), watcher, FakeStop())
    finally:
        os.sched_setaffinity(0, CPUS)
    assert list(watcher.seen.values()) == [{((CPUS[0],), str(CPUS[0]))}]
