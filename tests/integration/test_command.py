"""A foreign command under supervision: whatever it does, it ends in bounded time and leaves nothing running."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.machine.clock import SystemClock
from autotune.running import proc
from autotune.running.command import BoundedCommand, Ended, OutputLine, run_command
from autotune.running.ending import Stop
from autotune.running.job import Graces
from tests.support.fakes import FakeStop
from tests.support.waiting import PATIENCE_S

GRACES = Graces(terminate_s=0.5, orphans_s=0.2)


def command(tmp_path: Path, program: str, deadline_s: float = PATIENCE_S) -> BoundedCommand:
    return BoundedCommand(
        argv=(sys.executable, "-c", program),
        cwd=tmp_path,
        tag=f"autotune:test:command:{tmp_path.name}",
        logs=tmp_path / "logs",
        deadline_s=deadline_s,
        environment={"OF_MINE": "1"},
    )


def run(asked: BoundedCommand, enough: int = 10**9, level: int = 0) -> tuple[Ended, list[OutputLine]]:
    lines: list[OutputLine] = []

    def hear(line: OutputLine) -> bool:
        lines.append(line)
        return len(lines) >= enough

    return run_command(asked, hear, FakeStop(level), clock=SystemClock(), graces=GRACES), lines


def test_every_line_is_heard_when_it_comes_and_stderr_is_kept_apart(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "print('first ' + os.environ['OF_MINE'], flush=True); time.sleep(0.6)\n"
        "print('\\r 50%', file=sys.stderr); print('second'); print('x' * 3_000_000); sys.stdout.write('no end')\n"
    )
    ended, lines = run(command(tmp_path, program))
    assert (ended.exit_code, ended.stop) == (0, None)
    assert [line.text for line in lines[:2]] == ["first 1", "second"]
    assert lines[1].at - lines[0].at >= 0.5
    assert sum(len(line.text) for line in lines[2:]) == 3_000_000
    assert "50%" in ended.log_tail
    assert (tmp_path / "logs" / "stdout.txt").stat().st_size < 3_000_000  # capped


BURNS_S, SLACK_S = 0.5, 0.1
"""CPU seconds that are used on purpose, and what the kernel's ticks and two looks one after the other may miss."""


@pytest.mark.alone
@pytest.mark.parametrize("ready", [True, False])
def test_only_what_others_used_while_the_command_waited_for_a_cpu_was_taken(tmp_path: Path, ready: bool) -> None:
    one = min(os.sched_getaffinity(0))
    burn = f"ends = time.process_time() + {BURNS_S}\nwhile time.process_time() < ends: pass\n"
    program = f"import os, time\nos.sched_setaffinity(0, {{{one}}})\nprint('one', flush=True)\n"
    program += (burn if ready else f"time.sleep({3 * BURNS_S})\n") + "print('two', flush=True)\ntime.sleep(60)\n"
    lines: list[OutputLine] = []

    def hear(line: OutputLine) -> bool:
        lines.append(line)
        before, ends = os.sched_getaffinity(0), time.process_time() + BURNS_S
        os.sched_setaffinity(0, {one})
        while len(lines) == 1 and time.process_time() < ends:
            pass
        os.sched_setaffinity(0, before)
        return len(lines) == 2

    run_command(command(tmp_path, program), hear, FakeStop(), clock=SystemClock(), graces=GRACES)
    first, second = (line.others_s or 0.0 for line in lines)
    taken, cpus = (second - first) * (os.cpu_count() or 1), os.cpu_count() or 1
    assert taken >= BURNS_S - SLACK_S if ready else taken < BURNS_S
    assert 0 <= taken <= cpus * (lines[1].at - lines[0].at + 2 * SLACK_S)


def test_what_failed_tells_its_code_and_last_words(tmp_path: Path) -> None:
    ended, lines = run(command(tmp_path, "print('one'); raise SystemExit('it broke')"))
    assert (ended.exit_code, ended.stop) == (1, None)
    assert [line.text for line in lines] == ["one"]
    assert "it broke" in ended.log_tail


def test_a_command_that_is_not_there_is_told_not_raised(tmp_path: Path) -> None:
    asked = replace(command(tmp_path, ""), argv=(str(tmp_path / "nowhere"),))
    ended, _ = run(asked)
    assert ended.stop is Stop.NOT_STARTED
    assert "could not be started" in ended.why


ENDLESS = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print(os.getpid(), other.pid, flush=True)\n"
    "while True:\n    print('line', flush=True); time.sleep(0.05)\n"
)


@pytest.mark.parametrize(("deadline", "enough", "why"), [(5.0, 10**9, Stop.DEADLINE), (PATIENCE_S, 5, None)])
def test_past_its_deadline_or_once_enough_was_heard_nothing_of_it_runs(
    tmp_path: Path, deadline: float, enough: int, why: Stop | None
) -> None:
    began = time.monotonic()
    ended, lines = run(command(tmp_path, ENDLESS, deadline), enough)
    assert ended.stop is why
    assert ended.exit_code is None
    assert time.monotonic() - began < PATIENCE_S
    pids = [int(word) for word in lines[0].text.split()]
    assert len(pids) == 2
    for pid in pids:
        stat = proc.read_stat(pid)
        assert stat is None or stat.ended


def test_what_the_listener_raises_is_raised_after_the_processes_are_gone(tmp_path: Path) -> None:
    seen: list[OutputLine] = []

    def hear(line: OutputLine) -> bool:
        seen.append(line)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_command(command(tmp_path, ENDLESS), hear, FakeStop(), clock=SystemClock(), graces=GRACES)
    for pid in map(int, seen[0].text.split()):
        stat = proc.read_stat(pid)
        assert stat is None or stat.ended


def test_a_stop_that_was_asked_for_before_ends_it_at_once(tmp_path: Path) -> None:
    ended, _ = run(command(tmp_path, ENDLESS), level=2)
    assert ended.stop is Stop.CANCELLED
