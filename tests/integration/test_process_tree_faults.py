"""Children that misbehave: whatever they do, the attempt ends in bounded time with one cause and no process left."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Pool
from autotune.ports import Assignment, RunReport
from autotune.running import proc
from autotune.running.log import HEAD, TAIL
from autotune.running.watchdog import HangLimits
from tests.contracts.runner_suite import Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.scripted import assignment, local_runner
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import PhaseMark, RunPaths

HOME = f"faults-{os.getpid()}"
MIB = 1 << 20


def act(do: str, at: object = "start", **arguments: Any) -> dict[str, Any]:
    return {"do": do, "at": at, **arguments}


def run(
    directory: Path, *acts: dict[str, Any], seen: Seen | None = None, limit: int | None = None, **options: Any
) -> RunReport:
    """Run a trial with these acts."""
    deadline = options.pop("deadline_s", PATIENCE_S)
    wanted = assignment(directory / "attempt", {"acts": list(acts)}, deadline_s=deadline)
    if limit is not None:
        wanted = with_limit(wanted, limit)
    return local_runner(HOME, **options).run(wanted, seen or Seen(), FakeStop())


def with_limit(wanted: Assignment, limit: int) -> Assignment:
    return replace(wanted, study=replace(wanted.study, spec=replace(wanted.study.spec, memory_limit=limit)))


def gone(pids: list[int]) -> bool:
    """None of them runs any more."""
    return all((stat := proc.read_stat(pid)) is None or stat.ended for pid in pids)


def pids_in(directory: Path) -> list[int]:
    return [int(word) for word in (directory / "attempt" / "pids").read_text().split()]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    yield
    assert tagged(HOME) == []


class TestEnding:
    def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(self, tmp_path: Path) -> None:
        began = time.monotonic()
        report = run(tmp_path, act("ignore_sigterm"), act("sleep"), deadline_s=0.5)
        assert report.outcome.reason is FailureReason.TIMEOUT
        assert time.monotonic() - began < PATIENCE_S

    @pytest.mark.parametrize("how", ["plain", "session", "double_fork", "untagged"])
    def test_grandchildren_die_with_the_trial(self, tmp_path: Path, how: str) -> None:
        """Each ignores SIGTERM; the untagged ones have an empty environment."""
        report = run(tmp_path, act("spawn", count=3, how=how))
        assert report.outcome.ok
        assert report.quarantined == ()
        assert len(pids_in(tmp_path)) == 3
        assert gone(pids_in(tmp_path))

    def test_adopted_orphans_do_not_stay_as_zombies(self, tmp_path: Path) -> None:
        run(tmp_path, act("spawn", count=3, how="double_fork"), act("sleep", "end", seconds=0.3))
        assert [pid for pid in pids_in(tmp_path) if proc.read_stat(pid) is not None] == []

    def test_what_cannot_be_killed_is_quarantined_in_bounded_time(self, tmp_path: Path) -> None:
        """A signal that never arrives stands in for a process stuck in the kernel."""
        began = time.monotonic()
        report = run(tmp_path, act("spawn"), send=lambda process, number: None)
        try:
            assert time.monotonic() - began < PATIENCE_S
            assert report.quarantined == tuple(pids_in(tmp_path))
            assert report.outcome.ok, "the child itself had reported its result"
        finally:
            for pid in report.quarantined:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def test_a_child_that_does_not_exit_keeps_its_result(self, tmp_path: Path) -> None:
        began = time.monotonic()
        report = run(tmp_path, act("sleep", "exit"))
        assert report.outcome.ok
        assert "did not exit" in report.outcome.message
        assert time.monotonic() - began < PATIENCE_S

    def test_a_result_written_on_being_stopped_does_not_count(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("report_on_sigterm"), act("sleep"), deadline_s=5.0)
        assert RunPaths(tmp_path / "attempt").result.exists()
        assert report.outcome.reason is FailureReason.TIMEOUT


class TestHang:
    LIMITS = HangLimits(quiet_s=2.5, phase_s=PATIENCE_S)

    @pytest.mark.parametrize("how", ["sleep", "stop"])
    def test_silence_without_cpu_time_is_a_hang(self, tmp_path: Path, how: str) -> None:
        report = run(tmp_path, act(how, at=2), hang_limits=self.LIMITS)
        assert report.outcome.reason is FailureReason.HANG
        assert report.outcome.phase == "idle"

    def test_a_busy_silence_is_a_hang_only_by_the_phases_limit(self, tmp_path: Path) -> None:
        limits = HangLimits(quiet_s=0.5, phase_s=PATIENCE_S, by_phase={"load": 1.5})
        report = run(tmp_path, act("spin"), hang_limits=limits)
        assert report.outcome.reason is FailureReason.HANG
        assert report.outcome.phase == "load"
        assert "limit of this phase" in report.outcome.message

    def test_the_stacks_of_a_hung_child_are_in_the_log(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("stacks"), act("sleep"), hang_limits=self.LIMITS)
        assert "in act_sleep" in Path(report.outcome.log_path).read_text()

    def test_a_child_without_a_handler_is_not_ended_by_being_asked(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("sleep"), hang_limits=self.LIMITS)
        assert report.outcome.reason is FailureReason.HANG
        assert "User defined signal" not in Path(report.outcome.log_path).read_text()


class TestMemory:
    def test_really_allocated_memory_is_killed_at_the_limit(self, tmp_path: Path) -> None:
        limit = 700 * MIB
        report = run(tmp_path, act("allocate", at=2, bytes=1500 * MIB, pause=0.01), limit=limit)
        assert report.outcome.reason is FailureReason.OOM
        assert report.outcome.pool is Pool.HOST
        assert report.outcome.phase == "idle"
        assert limit < report.host_peak < 1400 * MIB

    def test_memory_of_grandchildren_counts(self, tmp_path: Path) -> None:
        spawn = act("spawn", how="session", count=3, bytes=300 * MIB)
        report = run(tmp_path, spawn, act("sleep"), limit=750 * MIB)
        assert report.outcome.reason is FailureReason.OOM
        assert not report.compiled
        assert gone(pids_in(tmp_path))

    def test_memory_of_compilers_does_not(self, tmp_path: Path) -> None:
        """Killed with the trial a compiler would have to begin again in the next one, and be killed again."""
        compile_it = act("spawn", count=3, bytes=300 * MIB, name="cc1plus")
        report = run(tmp_path, compile_it, act("sleep", seconds=2.0), limit=750 * MIB)
        assert report.outcome.ok, report.outcome.sentence()
        assert report.host_peak < 300 * MIB
        assert gone(pids_in(tmp_path)), "they are the trial's all the same"
        assert report.compiled

    def test_who_runs_out_of_memory_beside_a_compiler_says_that_there_was_one(self, tmp_path: Path) -> None:
        """So that it can be tried again when what the compiler made is there."""
        compile_it = act("spawn", count=1, bytes=MIB, name="cc1plus")
        pause, more = act("sleep", seconds=2.0), act("spawn", count=3, bytes=300 * MIB)
        report = run(tmp_path, compile_it, pause, more, act("sleep"), limit=750 * MIB)
        assert report.outcome.reason is FailureReason.OOM
        assert report.compiled

    def test_shared_memory_is_counted_once(self, tmp_path: Path) -> None:
        """Forks of a process that holds 300 MiB: 1.2 GiB of RSS, 0.3 GiB of PSS."""
        take = act("allocate", bytes=300 * MIB)
        report = run(tmp_path, take, act("spawn", count=3), act("sleep", seconds=2.0), limit=700 * MIB)
        assert report.outcome.ok, report.outcome.sentence()
        assert 300 * MIB < report.host_peak < 500 * MIB

    def test_the_peak_is_what_the_child_really_took(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("allocate", bytes=256 * MIB), act("sleep", seconds=2.0))
        assert 256 * MIB < report.host_peak < 320 * MIB

    def test_an_oom_the_child_reports_itself_is_believed(self, tmp_path: Path) -> None:
        own = {"reason": "OOM", "phase": "update", "pool": "device", "message": "CUDA out of memory"}
        report = run(tmp_path, act("result", result=own))
        assert (report.outcome.reason, report.outcome.phase) == (FailureReason.OOM, "update")
        assert report.outcome.pool is Pool.DEVICE
        assert report.outcome.suggestion


class TestExits:
    def test_a_silent_exit_is_a_crash(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("exit", at=1, code=0))
        assert report.outcome.reason is FailureReason.CRASH
        assert "exit code 0; no result" in report.outcome.message

    def test_a_signal_is_named(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("signal", number=int(signal.SIGSEGV)))
        assert report.outcome.reason is FailureReason.CRASH
        assert "SIGSEGV" in report.outcome.message

    def test_sigkill_from_outside_is_not_called_an_oom_without_evidence(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("signal", number=int(signal.SIGKILL)))
        assert report.outcome.reason is FailureReason.INFRA
        assert "from outside" in report.outcome.message

    def test_the_log_is_asked_last(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("print", text="CUDA out of memory\n"), act("exit", code=1))
        assert (report.outcome.reason, report.outcome.pool) == (FailureReason.OOM, Pool.DEVICE)

    def test_an_unreadable_result_is_a_crash_that_says_so(self, tmp_path: Path) -> None:
        report = run(tmp_path, act("write", name="result.json", text='{"ok": "perhaps"'), act("exit", code=3))
        assert report.outcome.reason is FailureReason.CRASH
        assert "cannot be read" in report.outcome.message


class TestFiles:
    @pytest.mark.parametrize(
        ("text", "bad"),
        [
            ("no json\n", 1),
            ('{"kind": "cycle"}\n', 1),
            ("\x00\xff\xfe\x80\n[1]\nnull\n", 3),
            ('{"kind":"startup","part":"load","seconds":1' + "0" * 400 + "}\n", 1),
        ],
    )
    def test_lines_that_are_no_records_are_counted_and_skipped(self, tmp_path: Path, text: str, bad: int) -> None:
        seen = Seen()
        report = run(tmp_path, act("raw", at=2, text=text), seen=seen)
        assert report.outcome.ok
        assert report.bad_lines == bad
        assert [c.index for c in seen.cycles()] == [0, 1, 2, 3]

    def test_a_torn_last_line_is_counted(self, tmp_path: Path) -> None:
        seen = Seen()
        report = run(tmp_path, act("raw", "end", text='{"kind":"cyc'), seen=seen)
        assert report.bad_lines == 1
        assert len(seen.cycles()) == 4

    def test_a_100_mb_line_is_skipped_in_bounded_memory(self, tmp_path: Path) -> None:
        seen = Seen()
        before = proc.read_resident(os.getpid())[0]
        report = run(tmp_path, act("raw", at=1, text="x" * MIB, times=100), act("raw", at=1, text="\n"), seen=seen)
        assert report.bad_lines == 1
        assert len(seen.cycles()) == 4
        assert proc.read_resident(os.getpid())[0] - before < 64 * MIB

    def test_a_flood_on_stdout_never_blocks_the_child_and_stays_capped(self, tmp_path: Path) -> None:
        report = run(
            tmp_path,
            act("print", text="first words\n"),
            act("flood", bytes=200 * MIB),
            act("print", text="last words\n"),
        )
        assert report.outcome.ok
        log = Path(report.outcome.log_path).read_bytes()
        assert len(log) < HEAD + TAIL + 100
        assert log.startswith(b"first words\n")
        assert log.endswith(b"last words\n")
        assert b"bytes left out" in log

    def test_phases_reach_the_watcher(self, tmp_path: Path) -> None:
        seen = Seen()
        run(tmp_path, act("sleep", seconds=2.0), act("sleep", at=2, seconds=2.0), seen=seen)
        assert ("load", -1) in [(p.phase, p.cycle) for p in seen.phases]
        assert ("idle", 1) in [(p.phase, p.cycle) for p in seen.phases]
        assert len((tmp_path / "attempt" / "phase").read_bytes()) == PhaseMark.WIDTH

    def test_the_watcher_is_ticked_at_least_once_a_second(self, tmp_path: Path) -> None:
        seen = Seen()
        run(tmp_path, act("sleep", seconds=2.5), seen=seen)
        gaps = sorted(b - a for a, b in zip(seen.ticks, seen.ticks[1:], strict=False))
        assert len(seen.ticks) >= 3
        assert gaps[len(gaps) // 2] < 1.0, "half of them at least, for a busy machine may hold up any single one"
