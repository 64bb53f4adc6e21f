"""verl trials through the real child and supervisor, with a stand-in for verl that needs no GPU."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import FailureReason, Phase, Pool
from autotune.ports import Assignment, RunReport
from autotune.running.launch import child_environment
from autotune.running.local import CHILD_START, study_tag
from tests.contracts.runner_suite import Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.verl_trials import (
    COMPLETION,
    KNOBS,
    LENGTHS,
    PROMPT,
    PROTOCOL,
    REWARD,
    StandIn,
    assignment,
    left_by,
    runner,
    stores,
)
from tests.support.waiting import wait_for
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    NoteRecord,
    RunPaths,
    StartupPart,
    StartupRecord,
    WorstCaseRecord,
    dumps,
    write_atomic,
)

HOME = f"verl-{os.getpid()}"


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    before = stores()
    yield
    assert left_by(assignment(tmp_path)) == []
    assert tagged(HOME) == []
    assert stores() <= before


def run(given: Assignment, seen: Seen | None = None, **script: Any) -> RunReport:
    return runner(HOME, StandIn(script)).run(given, seen or Seen(), FakeStop())


def notes(seen: Seen) -> dict[str, Any]:
    return {record.name: record.data for record in seen.records if isinstance(record, NoteRecord)}


def test_every_kind_of_cycle_has_the_lengths_it_is_to_have(tmp_path: Path) -> None:
    protocol = replace(PROTOCOL, natural=2, recorded=2, maximum=1, double=1, lengths=())
    seen = Seen()
    report = run(assignment(tmp_path, protocol), seen)
    assert report.outcome.ok, (report.outcome.sentence(), Path(report.outcome.log_path).read_text()[-3000:])
    cycles = seen.cycles()
    assert [cycle.cycle_kind.value for cycle in cycles] == (
        ["warmup", "natural", "natural", "recorded", "recorded", "maximum", "double"]
    )
    kinds: dict[CycleKind, list[CycleRecord]] = {}
    for cycle in cycles:
        kinds.setdefault(cycle.cycle_kind, []).append(cycle)
        assert (cycle.rows, cycle.updates, cycle.groups) == (8, 1, 2)
        assert cycle.completion_tokens == sum(cycle.lengths)
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds)
        assert cycle.peaks["cycle"].device_allocated == 3 << 29
    assert set(kinds[CycleKind.WARMUP][0].lengths) == {COMPLETION}
    assert kinds[CycleKind.WARMUP][0].prompt_tokens == 8 * PROMPT
    assert set(kinds[CycleKind.MAXIMUM][0].lengths) == {COMPLETION}
    assert kinds[CycleKind.MAXIMUM][0].prompt_tokens < 8 * PROMPT
    drawn = notes(seen)["lengths"]["lengths"]
    natural = [length for cycle in kinds[CycleKind.NATURAL] for length in cycle.lengths]
    assert set(drawn) <= set(natural)
    first, second = kinds[CycleKind.RECORDED]
    assert sorted(first.lengths) == sorted(second.lengths) == sorted(drawn)
    assert first.lengths != second.lengths
    assert sorted(kinds[CycleKind.DOUBLE][0].lengths) == sorted(min(2 * length, COMPLETION) for length in drawn)


def test_a_trial_says_what_it_knows_and_what_it_does_not(tmp_path: Path) -> None:
    seen = Seen()
    report = run(assignment(tmp_path), seen, step_s=0.1, daemon_mib=96)
    worst = [record for record in seen.records if isinstance(record, WorstCaseRecord)]
    assert [(each.rows, each.prompt_tokens, each.completion_tokens) for each in worst] == [(2, PROMPT, COMPLETION)]
    parts = [record.part for record in seen.records if isinstance(record, StartupRecord)]
    assert parts == [StartupPart.SPAWN, StartupPart.LOAD]
    limits = notes(seen)["verl_figures"]
    assert "reward" in limits["generate"]
    assert {"load", "drift", "warmup", "phase"} <= set(limits)
    assert not {"lengths", "zero_std_groups"} & set(limits)
    assert all(cycle.drift is None for cycle in seen.cycles())
    assert all(cycle.outside_cpu is not None for cycle in seen.cycles()[1:])
    # The stand-in's daemon counts, though it lives in a session of its own.
    assert report.host_peak > 96 << 20
    assert "load" in {phase.phase for phase in seen.phases}


def test_a_step_lasts_until_the_next_line_so_that_nothing_between_two_is_left_out(tmp_path: Path) -> None:
    seen = Seen()
    began = time.monotonic()
    assert run(assignment(tmp_path), seen, step_s=0.15).outcome.ok
    timed = [cycle for cycle in seen.cycles() if cycle.cycle_kind is CycleKind.RECORDED]
    assert all(cycle.seconds >= 0.15 for cycle in timed)
    assert sum(cycle.seconds for cycle in timed) < time.monotonic() - began
    for one, other in itertools.pairwise(timed):
        assert other.started <= one.started + one.seconds + 1e-3


def test_several_updates_of_a_rollout_are_one_cycle_of_all_its_rows(tmp_path: Path) -> None:
    given = assignment(tmp_path)
    knobs = KNOBS.with_(steps_per_generation=4)
    given = replace(given, trial=replace(given.trial, configuration=knobs))
    seen = Seen()
    assert run(given, seen).outcome.ok
    for cycle in seen.cycles():
        assert (cycle.rows, cycle.updates, cycle.groups) == (16, 2, 4)
    assert sorted(seen.cycles()[1].lengths) == sorted([*LENGTHS, *LENGTHS])


def test_groups_without_a_spread_of_rewards_are_counted(tmp_path: Path) -> None:
    alike = "def score(completions, answer, **columns):\n    return [1.0 for _ in completions]\n"
    seen = Seen()
    assert run(assignment(tmp_path, reward=alike), seen).outcome.ok
    assert {(cycle.groups, cycle.zero_std_groups) for cycle in seen.cycles()} == {(2, 2)}


@pytest.mark.parametrize(
    ("script", "reason", "pool", "phase", "said"),
    [
        ({"fail": "oom_update", "at": 2}, "OOM", Pool.DEVICE, "update", "CUDA out of memory"),
        ({"fail": "oom_generate", "at": 2}, "OOM", Pool.DEVICE, "generate", "CUDA out of memory"),
        ({"fail": "unknown_key", "at": 0}, "ILLEGAL", None, "import", "Key 'mine' is not in struct"),
        ({"fail": "killed", "at": 2}, "INFRA", None, None, "killed from outside by SIGKILL"),
        ({"torn": True, "at": 3}, "CRASH", None, None, "ValueError: the disk is gone"),
        ({"lost": True, "at": 2}, "CRASH", None, None, "step 2 has 7 of 8 completions"),
    ],
)
def test_a_failure_is_told_in_one_sentence(
    tmp_path: Path, script: dict[str, Any], reason: str, pool: Pool | None, phase: str | None, said: str
) -> None:
    seen = Seen()
    report = run(assignment(tmp_path), seen, **script)
    outcome = report.outcome
    assert (outcome.reason, outcome.pool) == (FailureReason(reason), pool), outcome.sentence()
    assert phase is None or outcome.phase == phase
    assert said in outcome.message
    assert len(outcome.message.splitlines()) == 1
    assert "\x1b" not in outcome.message
    assert "\x1b" not in Path(outcome.log_path).read_text()
    assert len(seen.cycles()) == max(0, script["at"] - 1)


@pytest.mark.parametrize(
    ("body", "reason", "said"),
    [
        ("raise KeyError('answer')", FailureReason.REWARD_ERROR, "the reward raised KeyError"),
        ("return None", FailureReason.REWARD_ERROR, "score returned None; it must return a list"),
        ("return [float('nan')]", FailureReason.REWARD_ERROR, "nan for completion 0; rewards must be finite"),
    ],
)
def test_a_reward_that_fails_ends_the_trial_though_verl_would_go_on(
    tmp_path: Path, body: str, reason: FailureReason, said: str
) -> None:
    own = f"def score(completions, answer, **columns):\n    {body}\n"
    report = run(assignment(tmp_path, reward=own), step_s=5.0)
    assert report.outcome.reason is reason
    assert report.outcome.phase == Phase.REWARD.value
    assert said in report.outcome.message


def test_a_log_that_never_appears_is_a_hang(tmp_path: Path) -> None:
    limits = replace(runner(HOME).hang_limits, quiet_s=1.0)
    found = runner(HOME, StandIn({"hang": True, "at": 0}), hang_limits=limits)
    report = found.run(assignment(tmp_path), Seen(), FakeStop())
    assert (report.outcome.reason, report.outcome.phase) == (FailureReason.HANG, "load")


def test_a_verl_that_will_not_end_is_ended(tmp_path: Path) -> None:
    """Nor do its daemons, which pass SIGTERM over as well."""
    report = run(assignment(tmp_path, deadline_s=1.5), hang=True, at=2, stubborn=True)
    assert report.outcome.reason is FailureReason.TIMEOUT


def test_an_interpreter_without_verl_is_refused_in_one_sentence(tmp_path: Path) -> None:
    report = runner(HOME, StandIn({}, place=None)).run(assignment(tmp_path), Seen(), FakeStop())
    assert report.outcome.reason is FailureReason.ILLEGAL
    assert report.outcome.message == ("no verl is installed; this release can measure verl >= 0.9.1 and < 0.10")


def words(process: psutil.Process) -> str:
    """Its command line; a zombie, which an earlier test may have left to us, has none."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_a_child_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    seen = Seen()

    def kill(_: object) -> None:
        child = next(p for p in psutil.Process().children() if str(tmp_path) in words(p))
        child.send_signal(signal.SIGKILL)

    seen.react = lambda record: kill(record) if isinstance(record, CycleRecord) and record.index == 1 else None
    report = run(assignment(tmp_path), seen, step_s=0.3)
    assert report.outcome.reason is FailureReason.INFRA
    assert "killed from outside by SIGKILL" in report.outcome.message


def test_what_a_killed_tuner_left_is_swept_with_its_ray(tmp_path: Path) -> None:
    given = assignment(tmp_path)
    paths = RunPaths(given.directory.resolve())
    spec = StandIn({"hang": True, "at": 2}).render(given)
    write_atomic(paths.config, dumps(spec))
    paths.scratch.mkdir()
    child = subprocess.Popen(
        [sys.executable, str(CHILD_START), "trial", "--directory", str(paths.root)],
        cwd=paths.scratch,
        env={**child_environment(os.environ, f"{study_tag(HOME, 1)}0:1"), **spec.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def a_cycle_is_told() -> bool:
        assert child.poll() is None
        return paths.metrics.exists() and b'"kind":"cycle"' in paths.metrics.read_bytes()

    wait_for(a_cycle_is_told, "the first cycle")
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert len(left_by(given)) >= 3  # its folder, verl, and the daemon
    found = runner(HOME)
    assert len(found.sweep(1)) >= 2
    records, result = found.recover(given.directory)
    assert result is None
    assert sum(isinstance(record, CycleRecord) for record in records) == 1


def test_a_ray_of_the_users_own_is_not_used(tmp_path: Path) -> None:
    """The stand-in refuses to go on where it sees one."""
    given = assignment(tmp_path, passthrough={"env": {"RAY_ADDRESS": "10.0.0.1:6379"}})
    assert run(given).outcome.ok


def test_a_reward_sees_the_columns_of_its_prompt(tmp_path: Path) -> None:
    """Prompts are begun again in their order: three of them, two a step."""
    own = REWARD.replace("return", f"open({str(tmp_path / 'seen')!r}, 'a').write(answer[0])\n    return")
    assert run(assignment(tmp_path, reward=own)).outcome.ok
    assert (tmp_path / "seen").read_text() == "0000111122220000111122220000" + "1111"
