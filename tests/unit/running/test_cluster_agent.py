"""An agent and the runner that follows it: a tuner that is gone, an agent that is gone, and what is left of a trial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from autotune.domain import FailureReason
from autotune.running.cluster.agent import Agent, Answer, End, Share
from autotune.running.cluster.guardian import carried
from autotune.running.cluster.runner import LostError, PlaceRunner
from autotune.running.local import study_tag
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.waiting import wait_for

HOME = f"agent-{os.getpid()}"
ALONE = Share(place=0, index=0, count=1, gpus=0)
SLOW = {"sleep": 0.5}


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """An agent changes that of its process."""
    with patch.dict(os.environ):
        yield


def agent(silence_s: float = 60.0) -> Agent:
    return Agent(local_runner(HOME), ALONE, silence_s=silence_s)


def test_a_tuner_that_is_silent_loses_its_trial(tmp_path: Path) -> None:
    found = agent(silence_s=1.0)
    found.begin(assignment(tmp_path / "attempt", SLOW))
    wait_for(lambda: tagged(HOME), "a trial")
    wait_for(lambda: not tagged(HOME), "its end")
    messages: list[Any] = []
    wait_for(lambda: messages.extend(found.hear(Answer())) or any(isinstance(m, End) for m in messages), "its report")
    report = messages[-1].report
    assert report.outcome.reason is FailureReason.INFRA
    assert "the tuner was not heard of" in report.outcome.message


def test_a_tuner_that_is_busy_keeps_its_trial(tmp_path: Path) -> None:
    """As long as a proposal takes, nobody listens."""
    held: list[float] = []

    def busy() -> None:
        if not held:
            held.append(time.monotonic())
            time.sleep(7.0)

    report = runner(agent(silence_s=5.0)).run(assignment(tmp_path / "attempt"), Seen(on_tick=busy), FakeStop())
    assert report.outcome.ok, report.outcome.sentence()


class Lost:
    """An agent that is lost at its ``at``-th call from then on."""

    def __init__(self, inner: Agent, at: int, *, place: bool) -> None:
        self._inner, self._left, self._place = inner, at, place

    def alive(self) -> None:
        """Does not arrive."""

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left < 0:
            raise LostError("gone", place=self._place)
        return getattr(self._inner, name)


def runner(*agents: Any) -> PlaceRunner:
    left = iter(agents)
    return PlaceRunner(lambda: next(left), lambda: None, local_runner(HOME).recover, RealClock())


def test_an_agent_lost_in_mid_trial_is_the_machines_fault_and_another_goes_on(tmp_path: Path) -> None:
    inner = agent(silence_s=1.0)
    place = runner(Lost(inner, 3, place=False), agent())
    report = place.run(assignment(tmp_path / "1", SLOW), Seen(), FakeStop())
    assert report.outcome.reason is FailureReason.INFRA
    assert (report.absent, report.place_lost) == (False, "")
    again = place.run(assignment(tmp_path / "2", SLOW), Seen(), FakeStop()).outcome
    assert again.ok, f"{again.sentence()}: the lost agent ends its own trial only, though it is the same attempt's"
    wait_for(lambda: not tagged(HOME), "the end of what the lost one ran")
    assert place.close() == ()


def test_two_agents_of_a_place_have_no_tag_in_common(tmp_path: Path) -> None:
    """The guardian of one that was killed may come late, when its successor's trial runs already."""
    given = assignment(tmp_path / "attempt")
    old, new = (agent()._runner.tags(given) for _ in range(2))
    for tag in new:
        assert carried(new, f"{tag}1" if tag.endswith("-") else tag)
        assert not carried(old, f"{tag}1" if tag.endswith("-") else tag)
        assert tag.startswith(study_tag(HOME, given.study.id)), "a sweep of the study finds it"


def test_an_agent_lost_while_idle_costs_no_attempt(tmp_path: Path) -> None:
    place = runner(Lost(agent(), 1, place=False), agent())
    assert place.sweep(1) == ()
    assert place.run(assignment(tmp_path / "attempt"), Seen(), FakeStop()).outcome.ok
    place.close()


def test_a_place_that_is_lost_says_so_and_whether_anything_ran(tmp_path: Path) -> None:
    before = runner(Lost(agent(), 0, place=True)).run(assignment(tmp_path / "1"), Seen(), FakeStop())
    assert (before.absent, before.place_lost) == (True, "gone")
    during = runner(Lost(agent(1.0), 2, place=True)).run(assignment(tmp_path / "2", SLOW), Seen(), FakeStop())
    assert (during.absent, during.place_lost) == (False, "gone")
    wait_for(lambda: not tagged(HOME), "the end of what it ran")


KILLED = """
import sys, time
from pathlib import Path
from tests.support.scripted import assignment
from tests.unit.running.test_cluster_agent import ALONE, local_runner
from autotune.running.cluster.agent import Agent, Answer
found = Agent(local_runner(sys.argv[1]), ALONE)
found.begin(assignment(Path(sys.argv[2]), {"sleep": 2.0}))
while True:
    found.hear(Answer())
"""


def test_a_killed_agents_trial_is_ended_by_its_guardian(tmp_path: Path) -> None:
    home = f"{HOME}-killed"
    command = [sys.executable, "-c", KILLED, home, str(tmp_path / "attempt")]
    killed = subprocess.Popen(command, cwd=Path(__file__).resolve().parents[3])
    try:
        wait_for(lambda: tagged(home), "a trial")
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    wait_for(lambda: not tagged(home), "its end", 60.0)


IDLE = """
import sys, time
from tests.unit.running.test_cluster_agent import ALONE, local_runner
from autotune.running.cluster.agent import Agent
found = Agent(local_runner("idle"), ALONE, silence_s=0.5)
for _ in range(40):
    found.attended()
    time.sleep(0.1)
print("stayed", flush=True)
if sys.argv[1:]:
    found.close()
    time.sleep(5.0)
    sys.exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize(("words", "code"), [((), 1), (("closed",), 0)])
def test_an_agent_with_nothing_to_run_leaves_once_its_tuner_is_silent(words: tuple[str, ...], code: int) -> None:
    command = [sys.executable, "-c", IDLE, *words]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("stayed\n", code), done.stderr


def test_a_tuner_says_that_it_is_there_while_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.running.cluster.runner.PULSE_S", 0.01)
    idle = Counted()
    place = PlaceRunner(lambda: idle, lambda: None, local_runner(HOME).recover, RealClock(), idle)
    wait_for(lambda: idle.signs >= 3, "three signs of life")
    place.close()
    signs = idle.signs
    time.sleep(0.3)
    assert idle.signs <= signs + 1, "one may have been on its way"


class Counted:
    """An agent that counts the signs of life."""

    signs = 0

    def alive(self) -> None:
        self.signs += 1

    def close(self) -> tuple[int, ...]:
        return ()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_guardian_ends_its_own_places_processes_only() -> None:
    tags = ("autotune:h:1:17:1", "autotune:h:1:worker:3-")
    assert carried(tags, "autotune:h:1:17:1")
    assert carried(tags, "autotune:h:1:worker:3-2")
    assert not carried(tags, "autotune:h:1:17:11")
    assert not carried(tags, "autotune:h:1:worker:31-2")
    assert not carried((), "autotune:h:1:17:1")


def test_places_share_the_memory_and_a_studys_own_limit_stays(tmp_path: Path) -> None:
    """A limit that is too small for the scripted child ends it, whatever the share is."""
    found = Agent(local_runner(HOME), replace(ALONE, count=2))
    assert found.meet(tmp_path / "none", "").memory is not None
    given = assignment(tmp_path / "attempt", SLOW)
    study = replace(given.study, spec=replace(given.study.spec, memory_limit=1 << 20))
    report = runner(found).run(replace(given, study=study), Seen(), FakeStop())
    assert report.outcome.reason is FailureReason.OOM


def test_the_tuners_folder_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    found = agent()
    (tmp_path / "file").write_text("one")
    assert found.meet(tmp_path / "file", "one").shares_folder
    assert not found.meet(tmp_path / "file", "another").shares_folder
    assert not found.meet(tmp_path / "not-there", "one").shares_folder


def test_an_agent_takes_the_tuners_variables_where_it_has_none() -> None:
    os.environ.update({"OMP_NUM_THREADS": "1", "HF_HOME": "/here"})
    Agent(local_runner(HOME), ALONE, {"HF_HOME": "/there", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"})
    variables = {
        name: os.environ.get(name) for name in ("HF_HOME", "NCCL_DEBUG", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    }
    expected = {"HF_HOME": "/here", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": ""}
    assert variables == expected
