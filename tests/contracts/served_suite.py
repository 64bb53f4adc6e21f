"""What every ``ports.TrialRunner`` must do with a trial that needs a rollout server beside it.

Subclass ``ServedTrialSuite`` with a ``runner`` fixture (``make_runner(**changes)``) and an ``assign`` fixture:
``assign(server=..., acts=..., **changes)`` gives an ``Assignment`` whose server is ``tests/support/scripted_server.py``
with that script.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import FailureReason, Pool
from autotune.ports import Assignment, RunReport
from tests.contracts.runner_suite import MakeRunner, Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import SERVER_VARIABLE, CycleRecord, RunPaths, StartupPart, StartupRecord

Assign = Callable[..., Assignment]
MIB = 1 << 20


def listened(folder: Path) -> set[int]:
    """Ports of the servers started below ``folder`` that somebody still listens on."""
    used = {int(path.read_text()) for path in folder.rglob("port")}
    found = psutil.net_connections("tcp")
    return {c.laddr.port for c in found if c.status == psutil.CONN_LISTEN} & used


def act(do: str, at: object = "start", **arguments: Any) -> dict[str, Any]:
    return {"do": do, "at": at, **arguments}


class ServedTrialSuite:
    """Run on every implementation."""

    home = f"served-{os.getpid()}"

    @pytest.fixture(autouse=True)
    def _nothing_is_left(self, tmp_path: Path) -> Any:
        yield
        assert tagged(self.home) == []
        assert listened(tmp_path) == set()

    def run(self, make_runner: MakeRunner, assignment: Assignment, seen: Seen | None = None) -> RunReport:
        return make_runner().run(assignment, seen or Seen(), FakeStop())

    def test_the_trial_begins_when_the_server_answers(self, make_runner: MakeRunner, assign: Assign) -> None:
        seen = Seen()
        ask = act("ask", path="/v1/models")
        assignment = assign(server={"ready": 0.7, "text": "loading weights"}, acts=[ask])
        report = self.run(make_runner, assignment, seen)
        assert report.outcome.ok, report.outcome.sentence()
        parts = [r for r in seen.records if isinstance(r, StartupRecord)]
        assert [p.part for p in parts][:2] == [StartupPart.SERVER, StartupPart.IMPORT]
        assert parts[0].seconds >= 0.7
        assert next(p.phase for p in seen.phases) == StartupPart.SERVER.value
        paths = RunPaths(assignment.directory)
        assert "loading weights" in paths.server_log.read_text()
        assert "loading weights" not in paths.log.read_text()
        assert report.outcome.log_path == str(paths.log)

    def test_what_such_an_attempt_left_can_be_recovered_whole(self, make_runner: MakeRunner, assign: Assign) -> None:
        seen, assignment, runner = Seen(), assign(server={}), make_runner()
        runner.run(assignment, seen, FakeStop())
        records, result = runner.recover(assignment.directory)
        assert list(records) == seen.records
        assert result.ok

    def test_the_trial_is_told_which_process_its_server_is(self, make_runner: MakeRunner, assign: Assign) -> None:
        """Its engine keeps a core busy, which is no neighbour's doing."""
        assignment = assign(server={}, acts=[act("write_environment", name=SERVER_VARIABLE, file="pid")])
        assert self.run(make_runner, assignment).outcome.ok
        said = (assignment.directory / "pid").read_text()
        assert said.isdigit()
        assert f"pid {said}" in RunPaths(assignment.directory).server_log.read_text()

    def test_each_gets_the_environment_meant_for_it(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment = assign(server={}, acts=[act("environment", name="SCRIPTED", value="trial")])
        report = self.run(make_runner, assignment)
        assert report.outcome.ok, report.outcome.sentence()

    def test_a_server_that_never_answers_is_a_timeout_of_its_own(self, make_runner: MakeRunner, assign: Assign) -> None:
        seen = Seen()
        assignment = assign(server={"ready": None, "ready_s": 1.0, "text": "still compiling"})
        report = self.run(make_runner, assignment, seen)
        assert report.outcome.reason is FailureReason.TIMEOUT
        assert report.outcome.message == "the rollout server was not ready after 1 s"
        assert report.outcome.phase == StartupPart.SERVER.value
        assert "server.txt" in report.outcome.suggestion
        assert "still compiling" in Path(report.outcome.log_path).read_text()
        assert seen.records == [], "the trial itself must not have been started"

    @pytest.mark.parametrize(
        ("text", "reason", "pool"),
        [
            ("CUDA out of memory", FailureReason.OOM, Pool.DEVICE),
            ("No available memory for the cache blocks", FailureReason.OOM, Pool.ROLLOUT_CACHE),
            ("nothing anybody knows", FailureReason.CRASH, None),
        ],
    )
    def test_a_server_that_dies_before_it_answers_is_judged_by_its_own_log(
        self, make_runner: MakeRunner, assign: Assign, text: str, reason: FailureReason, pool: Pool | None
    ) -> None:
        report = self.run(make_runner, assign(server={"text": text, "dies": 3}))
        assert (report.outcome.reason, report.outcome.pool) == (reason, pool)
        assert text in Path(report.outcome.log_path).read_text()
        if reason is FailureReason.CRASH:
            assert report.outcome.message == "the rollout server ended with exit code 3 before it was ready"

    def test_a_server_that_dies_in_mid_trial_ends_it(self, make_runner: MakeRunner, assign: Assign) -> None:
        seen, began = Seen(), time.monotonic()
        assignment = assign(
            server={"dies_with": "two"}, acts=[act("write", at=2, name="scratch/two", text=""), act("sleep", at=2)]
        )
        report = self.run(make_runner, assignment, seen)
        assert report.outcome.reason is FailureReason.CRASH
        assert report.outcome.message == "the rollout server ended with exit code 1 in the middle of the trial"
        assert len([r for r in seen.records if isinstance(r, CycleRecord)]) == 2, "what was measured before is kept"
        assert time.monotonic() - began < PATIENCE_S

    @pytest.mark.parametrize("slow", [0.0, 0.5])
    def test_the_servers_end_is_the_cause_and_not_the_trials_complaint(
        self, make_runner: MakeRunner, assign: Assign, slow: float
    ) -> None:
        """The client is told by a broken connection, before or after the server is seen to be gone."""
        server = {"dies_on": "/v1/completions", "text_on": "torch.OutOfMemoryError: CUDA out of memory"}
        asked = act("ask", at=1, path="/v1/completions", body={}, slow=slow)
        report = self.run(make_runner, assign(server=server, acts=[asked]))
        assert (report.outcome.reason, report.outcome.pool) == (FailureReason.OOM, Pool.DEVICE)

    def test_the_trials_own_failure_is_not_blamed_on_the_server(self, make_runner: MakeRunner, assign: Assign) -> None:
        own = {"reason": "NAN", "phase": "update", "message": "loss is nan"}
        report = self.run(make_runner, assign(server={}, acts=[act("result", result=own)]))
        assert report.outcome.reason is FailureReason.NAN
        assert report.outcome.phase == "update"

    def test_a_trial_that_crashes_takes_its_server_with_it(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = self.run(make_runner, assign(server={}, acts=[act("exit", at=1, code=7)]))
        assert report.outcome.reason is FailureReason.CRASH
        assert "exit code 7" in report.outcome.message

    def test_a_server_that_ignores_sigterm_is_killed(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = self.run(make_runner, assign(server={"ignores": True}))
        assert report.outcome.ok, report.outcome.sentence()
        assert report.quarantined == ()

    def test_what_the_server_started_dies_with_the_trial(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment = assign(server={"spawn": ["session", "double_fork"], "ready": 0.5})
        report = self.run(make_runner, assignment)
        assert report.outcome.ok, report.outcome.sentence()
        pids = [int(word) for word in (RunPaths(assignment.directory).scratch / "pids").read_text().split()]
        assert len(pids) == 2
        assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)

    @pytest.mark.parametrize("ignores", [False, True])
    def test_its_shared_memory_goes_with_it(self, make_runner: MakeRunner, assign: Assign, ignores: bool) -> None:
        assignment = assign(server={"segment": MIB, "ignores": ignores})
        report = self.run(make_runner, assignment)
        assert report.outcome.ok, report.outcome.sentence()
        name = (RunPaths(assignment.directory).scratch / "segment").read_text()
        assert not Path("/dev/shm", name.lstrip("/")).exists()

    def test_its_start_counts_against_the_deadline(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = self.run(make_runner, assign(server={"ready": None}, deadline_s=0.6))
        assert report.outcome.reason is FailureReason.TIMEOUT
        assert "not finished after" in report.outcome.message
        assert report.outcome.phase == StartupPart.SERVER.value

    def test_stopping_now_does_not_wait_for_it(self, make_runner: MakeRunner, assign: Assign) -> None:
        stop = FakeStop()
        seen = Seen(on_tick=lambda: setattr(stop, "level", 2))
        report = make_runner().run(assign(server={"ready": None}), seen, stop)
        assert report.outcome.reason is FailureReason.CANCELLED

    def test_its_memory_counts(self, make_runner: MakeRunner, assign: Assign) -> None:
        assignment = assign(server={"bytes": 400 * MIB}, acts=[act("sleep")], memory_limit=300 * MIB)
        report = self.run(make_runner, assignment)
        assert (report.outcome.reason, report.outcome.pool) == (FailureReason.OOM, Pool.HOST)

    def test_a_watcher_that_fails_takes_both_down(self, make_runner: MakeRunner, assign: Assign) -> None:
        def fail(_: object) -> None:
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            self.run(make_runner, assign(server={}, acts=[act("sleep")]), Seen(react=fail))
        assert tagged(self.home) == []

    def test_a_port_taken_meanwhile_is_not_the_trials_fault(
        self, make_runner: MakeRunner, assign: Assign, steal: Callable[[Assignment, int], list[int]]
    ) -> None:
        """Somebody listens at the first port, and even answers there as a server would."""
        assignment = assign(server={"binds": 0.8}, acts=[act("ask", path="/v1/models")])
        tried = steal(assignment, 1)
        report = self.run(make_runner, assignment)
        assert report.outcome.ok, report.outcome.sentence()
        assert len(tried) == 2
        assert tried[0] != tried[1]

    def test_a_strangers_answer_is_not_the_servers(
        self, make_runner: MakeRunner, assign: Assign, steal: Callable[[Assignment, int], list[int]]
    ) -> None:
        """The stranger answers all the while that the server starts, and the answer does not say whose it is."""
        assignment = assign(server={"binds": 2.0, "answer": ""}, acts=[act("ask", path="/v1/models")])
        tried = steal(assignment, 1)
        seen = Seen()
        report = self.run(make_runner, assignment, seen)
        assert report.outcome.ok, report.outcome.sentence()
        assert len(set(tried)) == 2
        (started,) = [r for r in seen.records if isinstance(r, StartupRecord) and r.part is StartupPart.SERVER]
        assert started.seconds >= 2.0, "the stranger had answered before"

    def test_strangers_at_every_port_end_it(
        self, make_runner: MakeRunner, assign: Assign, steal: Callable[[Assignment, int], list[int]]
    ) -> None:
        assignment = assign(server={"binds": 600, "answer": ""})
        tried = steal(assignment, 99)
        report = self.run(make_runner, assignment)
        assert report.outcome.reason is FailureReason.INFRA
        assert f"another process answers at port {tried[-1]}" in report.outcome.message
        assert 1 < len(tried) < 10

    def test_ports_that_are_always_taken_end_it(
        self, make_runner: MakeRunner, assign: Assign, steal: Callable[[Assignment, int], list[int]]
    ) -> None:
        assignment = assign(server={})
        tried = steal(assignment, 99)
        report = self.run(make_runner, assignment)
        assert not report.outcome.ok
        assert "before it was ready" in report.outcome.message
        assert 1 < len(tried) < 10

    def test_a_server_that_cannot_be_started_is_an_outcome(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = self.run(make_runner, assign(server={"python": "/nowhere/bin/python"}))
        assert report.outcome.reason is FailureReason.INFRA
        assert "/nowhere/bin/python" in report.outcome.message

    def test_a_trial_that_cannot_be_started_leaves_no_server(self, make_runner: MakeRunner, assign: Assign) -> None:
        report = make_runner(python="/nowhere/bin/python").run(assign(server={}), Seen(), FakeStop())
        assert report.outcome.reason is FailureReason.INFRA
        assert "/nowhere/bin/python" in report.outcome.message


class Stranger:
    """Listens at a port and answers everything with 200, as anybody's server may."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._pid = os.fork()
        if self._pid == 0:
            self._answer()

    def _answer(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"data": [{"id": "somebody else"}]}')

    def end(self) -> None:
        self._socket.close()
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
