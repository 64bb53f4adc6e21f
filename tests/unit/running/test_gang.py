"""A trial on two nodes whose agents are in this process: where its ranks meet, and that one node's end is the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from autotune.domain import FailureReason, Outcome, Pool
from autotune.domain.places import GPUS, place_of
from autotune.frameworks import TrlFramework
from autotune.ports import RunReport
from autotune.running.cluster.agent import Agent, Answer, Message, Share
from autotune.running.cluster.runner import (
    GangRunner,
    LostError,
    PlaceRunner,
    Remote,
    _Together,
    part_of,
    report_of_all,
)
from tests.contracts.runner_suite import RealClock, Seen, looked, tagged
from tests.support.fakes import FakeStop
from tests.support.scripted import TwoNodes, assignment, launcher, local_runner
from tests.support.waiting import wait_for
from trainer.child.contract import CycleRecord, NoteRecord, Record

HOME = f"gang-{os.getpid()}"
ADDRESS = "10.0.0.1"
SLOW = {"sleep": 0.5}


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """An agent changes that of its process."""
    with patch.dict(os.environ):
        yield
    assert tagged(HOME) == []


class Cut:
    """An agent whose machine is gone as soon as it has told of a cycle; ``Agent`` itself hears no more."""

    def __init__(self, agent: Agent, place: bool) -> None:
        self._agent, self._place = agent, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def hear(self, answer: Answer) -> list[Message]:
        found = self._agent.hear(answer)
        if any(isinstance(message, CycleRecord) for message in found):
            self.alive = lambda: None
            raise LostError("node n2 left the cluster", place=self._place)
        return found


def gang(folder: Path, second: Callable[[Agent], Remote] = lambda agent: agent) -> GangRunner:
    """Both nodes are this machine; ``second`` is what the tuner has of the second's agent."""
    inner = local_runner(HOME, python=launcher(folder), framework=TwoNodes())
    agents = [Agent(inner, Share(0, 0, 1, 0), silence_s=2.0) for _ in range(2)]
    remotes: list[Remote] = [agents[0], second(agents[1])]

    def part(remote: Remote) -> PlaceRunner:
        return PlaceRunner(lambda: remote, lambda: None, inner.recover, RealClock(), remote)

    return GangRunner([part(remote) for remote in remotes], ADDRESS, inner.framework.diagnose, RealClock())


def ranks(seen: Seen) -> list[list[int]]:
    """Indexes of the cycles each rank has told of."""
    return [[c.index for c in seen.cycles() if c.rank == rank] for rank in (0, 1)]


def test_both_nodes_meet_at_the_first_and_tell_as_one_trial(tmp_path: Path) -> None:
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
    acts = [{"do": "write_environment", "name": name, "file": name.lower()} for name in names]
    given, seen, runner = assignment(tmp_path / "attempt", {"acts": acts}), Seen(), gang(tmp_path)
    report = runner.run(given, seen, FakeStop())
    assert report.outcome.ok, report.outcome.sentence()
    first, second = ranks(seen)
    assert first == second == list(range(len(first)))
    assert len(first) > 3
    environments = [
        {name: (part_of(given.directory, number) / name.lower()).read_text() for name in names} for number in (0, 1)
    ]
    assert [one["RANK"] for one in environments] == ["0", "1"]
    assert {(one["MASTER_ADDR"], one["WORLD_SIZE"]) for one in environments} == {(ADDRESS, "2")}
    assert environments[0]["MASTER_PORT"] == environments[1]["MASTER_PORT"]
    assert report.host_peak
    records, result = runner.recover(given.directory)
    assert sorted((r.rank, r.index) for r in records if isinstance(r, CycleRecord)) == sorted(
        (c.rank, c.index) for c in seen.cycles()
    )
    assert result is not None


@pytest.mark.parametrize("rank", [0, 1])
def test_what_fails_on_one_node_ends_the_other_and_is_the_reason(tmp_path: Path, rank: int) -> None:
    result = {"reason": "OOM", "phase": "update", "pool": "device", "message": "CUDA out of memory"}
    script = {"sleep": 2.0, "acts": [{"do": "result", "at": 1, "rank": rank, "result": result}]}
    given, seen = assignment(tmp_path / "attempt", script), Seen()
    report = gang(tmp_path).run(given, seen, FakeStop())
    assert (report.outcome.reason, report.outcome.pool) == (FailureReason.OOM, Pool.DEVICE)
    assert Path(report.outcome.log_path).parent == part_of(given.directory, rank)
    assert len(ranks(seen)[1 - rank]) < 4


@pytest.mark.parametrize("place", [True, False])
def test_a_node_that_is_gone_ends_the_other_and_is_the_machines_fault(tmp_path: Path, place: bool) -> None:
    seen = Seen()
    given = assignment(tmp_path / "attempt", {"sleep": 2.0})
    report = gang(tmp_path, lambda agent: Cut(agent, place)).run(given, seen, FakeStop())
    assert report.outcome.reason is FailureReason.INFRA
    assert report.outcome.message == "node n2 left the cluster"
    assert report.place_lost == ("node n2 left the cluster" if place else "")
    assert not report.absent, "it had begun"
    assert len(ranks(seen)[0]) < 4
    wait_for(lambda: not tagged(HOME), "the end of the rank whose tuner is silent")


def test_a_first_node_that_is_gone_costs_no_attempt(tmp_path: Path) -> None:
    def gone() -> Remote:
        raise LostError("node n1 left the cluster", place=True)

    inner = local_runner(HOME)
    part = PlaceRunner(gone, lambda: None, inner.recover, RealClock())
    report = GangRunner([part, part], ADDRESS, inner.framework.diagnose, RealClock()).run(
        assignment(tmp_path / "attempt"), Seen(), FakeStop()
    )
    assert report.absent
    assert report.outcome.reason is FailureReason.INFRA


def test_the_users_stop_ends_both(tmp_path: Path) -> None:
    stop = FakeStop()
    seen = Seen(react=lambda record: setattr(stop, "level", 2))
    report = gang(tmp_path).run(assignment(tmp_path / "attempt", SLOW), seen, stop)
    assert report.outcome.reason is FailureReason.CANCELLED


def test_what_a_watcher_raises_is_raised_when_both_have_ended(tmp_path: Path) -> None:
    def fail(record: Record) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gang(tmp_path).run(assignment(tmp_path / "attempt", SLOW), Seen(react=fail), FakeStop())


def test_a_trial_that_was_measured_enough_ends_on_both(tmp_path: Path) -> None:
    given, seen = looked(assignment(tmp_path / "attempt")), Seen(enough=True)
    report = gang(tmp_path).run(given, seen, FakeStop())
    assert len(ranks(seen)[0]) < 2 + given.trial.protocol.natural + given.trial.protocol.recorded
    assert report.seconds > 0


ECHO = Outcome(FailureReason.CRASH, message="[../gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]")
KILLED = Outcome(FailureReason.CRASH, message="a rank was killed from outside by SIGKILL")
STOPPED = Outcome(FailureReason.CANCELLED, message="stopped by the user")
OOM = Outcome(FailureReason.OOM, message="CUDA out of memory")
LOST = Outcome(FailureReason.INFRA, message="node n2 left the cluster")
HUNG = Outcome(FailureReason.HANG, message="no progress")
FINE = Outcome()


@pytest.mark.parametrize(
    ("outcomes", "cause"),
    [
        ((FINE, FINE), FINE),
        ((ECHO, KILLED), KILLED),
        ((STOPPED, ECHO), ECHO),
        ((ECHO, LOST), LOST),
        ((KILLED, LOST), LOST),
        ((LOST, OOM), OOM),
        ((HUNG, ECHO), HUNG),
        ((FINE, STOPPED), STOPPED),
        ((FINE, LOST), LOST),
    ],
)
def test_the_cause_is_what_tells_of_no_other_node(outcomes: tuple[Outcome, Outcome], cause: Outcome) -> None:
    for order in (outcomes, outcomes[::-1]):
        reports = [RunReport(outcome, 1.0, host_peak=n, bad_lines=1) for n, outcome in enumerate(order)]
        found = report_of_all(reports, TrlFramework().diagnose)
        assert found.outcome == cause
        assert (found.host_peak, found.bad_lines) == (1, 2)


def test_the_gpus_of_all_nodes_are_the_trials() -> None:
    seen = Seen()
    together = _Together(seen, FakeStop())
    for number in (1, 2):
        together.record(NoteRecord(GPUS, {"held": [{"index": 0, "uuid": f"GPU-{number}"}]}))
    notes = [record for record in seen.records if isinstance(record, NoteRecord)]
    assert [gpu.uuid for gpu in place_of(notes).gpus] == ["GPU-1", "GPU-2"]
