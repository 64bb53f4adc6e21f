"""vLLM's own server, launched on a CPU by a trial's command line: nothing of it is left, however it ends.

Not beside other tests: what it leaves in shared memory may have a name that is no process's here.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from autotune.ports import Place
from autotune.running.companion import free_ports
from autotune.running.ending import Stop
from tests.contracts.runner_suite import tagged
from tests.support.fakes import FakeStop
from tests.support.rank_trials import shared_memory
from tests.support.rollout_servers import ASKED, HOME, check_lengths, real_server, run, spec_for
from tests.support.trl_trials import training_python
from trainer.child.contract import StartupPart, StartupRecord

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.full, pytest.mark.trl, pytest.mark.alone]


@dataclass
class Held:
    """What the processes of the run hold while they live."""

    addresses: set[str] = field(default_factory=set)
    segments: set[Path] = field(default_factory=set)

    def look(self) -> None:
        pids = tagged(HOME)
        found = psutil.net_connections("tcp")
        self.addresses |= {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN and c.pid in pids}
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                maps = {Path(m.path) for m in psutil.Process(pid).memory_maps() if m.path.startswith("/dev/shm/")}
                self.segments |= {path for path in maps if path.exists()}


@pytest.mark.parametrize("killed", [False, True])
def test_vllms_own_server_by_the_launch_line(tiny: Path, tmp_path: Path, killed: bool) -> None:
    """Started, asked for lengths by TRL's client, and ended, in the second case by SIGKILL alone."""
    held, directory, before = Held(), tmp_path / "attempt", shared_memory()

    def answered(stop: FakeStop) -> None:
        held.look()
        stop.level = 2 if killed else 0

    asked = {**ASKED, "wait": 600 if killed else 3}
    place = Place(training_python(), (), *free_ports(2))
    launched = real_server(spec_for(place.port, str(tiny / "model")), place, tmp_path)
    ran = run(directory, launched, asked, answered, 0.0 if killed else 20.0)
    if killed:
        assert ran.ending.stop is Stop.CANCELLED, ran.ending
        check_lengths(json.loads((directory / "answers.json").read_text()))
    else:
        check_lengths(ran.answers)
        assert [answer["preemptions"] for answer in ran.answers] == [0, 0, 0]
    started = [r.part for r in ran.seen.records if isinstance(r, StartupRecord)]
    assert started == [StartupPart.SERVER]
    assert held.addresses == {"127.0.0.1"}
    assert held.segments, "its processes speak through shared memory"
    assert [path for path in held.segments if path.exists()] == []
    assert shared_memory() <= before, "semaphores are mapped under a name they do not have"
    assert tagged(HOME) == []
    assert ran.ending.quarantined == ()
