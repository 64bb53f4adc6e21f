from __future__ import annotations

import functools
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.made_up_files import write
from tests.support.not_none import not_none
from tests.support.waiting import wait_for
from trainer.child import guard
from trainer.child.contract import SERVER_VARIABLE
from trainer.child.guard import (
    ClockGuard,
    GuardReading,
    MachineCpu,
    TreeUse,
    machine_cpu,
    server_pid,
    taken_share,
    tree_use,
    worst,
)
from trainer.child.memory import descendants, pss, status_bytes


class Kernel:
    """Takes the times it is told."""

    def __init__(self, *times: float) -> None:
        self._times = list(times)

    def product(self) -> float:
        return self._times.pop(0)


def test_drift_is_the_change_of_the_kernel_in_either_direction() -> None:
    for before, after in ((0.010, 0.012), (0.012, 0.0096)):
        guard = ClockGuard(Kernel(before, after))
        guard.before()
        verdict = guard.after()
        assert verdict.drift == pytest.approx(0.2)
        assert verdict.reference == pytest.approx((before + after) / 2)


def test_an_untimed_cycle_is_not_judged_but_its_cpu_time_is_counted() -> None:
    guard = ClockGuard(Kernel())
    guard.before(timed=False)
    sum(i * i for i in range(2_000_000))
    verdict = guard.after()
    assert (verdict.drift, verdict.reference) == (None, None)
    assert verdict.outside_cpu is None
    assert verdict.cpu_seconds > 0


def test_another_rank_of_the_trial_is_no_stranger() -> None:
    """Else two ranks would each hold the other for a neighbour, and every cycle would be thrown away."""
    shares = []
    for of_all in ([1e6, 1e6], [-1e6, 1e6]):  # CPU seconds, and seconds waited, of all ranks
        guard, figures = ClockGuard(Kernel(1.0, 1.0)), iter(of_all)
        guard.before()
        verdict = guard.after(lambda own, figures=figures: own + next(figures))  # type: ignore[misc]
        shares.append(verdict.outside_cpu)
        assert verdict.cpu_seconds < 100  # its own stay its own
    assert shares[0] is not None
    assert shares[0] < 0.5  # only what the hypervisor stole
    assert shares[1] is not None
    assert shares[1] > 1.0


BUSY = (
    "import time; s = time.process_time()\n"
    "while time.process_time() - s < 0.5: pass\n"
    "print(flush=True); time.sleep(600)"
)
"""Half a second of one core."""
FORKS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_a_rollout_server_is_no_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor its engine processes below it, which keep a core busy while they generate: else every cycle of a trial with a
    server would be thrown away."""
    seen: list[float] = []

    def of_all(own: float) -> float:
        seen.append(own)
        return own

    real = guard.tree_use  # a trial's server is no child of its own, as this one is
    monkeypatch.setattr(guard, "tree_use", lambda pid=None: real(pid) if pid else guard.TreeUse(waits={1: 0.0}))
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, start_new_session=True) as server:
        monkeypatch.setenv(SERVER_VARIABLE, str(server.pid))
        assert server_pid() == server.pid
        guards = (ClockGuard(Kernel(1.0, 1.0), server_pid()), ClockGuard(Kernel(1.0, 1.0)))
        for each in guards:
            each.before()
        not_none(server.stdout).readline()
        verdicts = [each.after(of_all) for each in guards]
        for pid in [*descendants(server.pid), server.pid]:
            os.kill(pid, signal.SIGKILL)
    assert seen[0] == pytest.approx(0.5, abs=0.3), "the server's CPU seconds count as the trial's"
    assert seen[2:] == [0.0, 0.0]
    assert all(v.outside_cpu is not None for v in verdicts)
    assert verdicts[0].cpu_seconds == 0.0, "a rank's own seconds stay its own"


def test_a_server_that_is_gone_or_never_was_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER_VARIABLE, raising=False)
    assert server_pid() is None
    alone = ClockGuard(Kernel(1.0, 1.0), 2**22 + 1)
    alone.before()
    assert alone.after().outside_cpu is not None


def test_ranks_accept_a_cycle_together() -> None:
    """A rank that repeats a cycle alone waits for ever for the others."""
    seen = [GuardReading(1.0, 0.01, None, 0.006), GuardReading(2.0, 0.09, 0.2, 0.005), GuardReading(3.0, None, 0.01)]
    shared = [worst(own, seen) for own in seen]
    assert {(v.drift, v.outside_cpu, v.reference) for v in shared} == {(0.09, 0.2, 0.006)}
    assert [v.cpu_seconds for v in shared] == [1.0, 2.0, 3.0]
    untimed = [GuardReading(1.0), GuardReading(2.0)]
    assert worst(untimed[0], untimed) == untimed[0]


BEFORE = MachineCpu(busy=100.0, stolen=7.0, cpus=4)


@pytest.mark.parametrize(
    ("busy", "stolen", "own", "waited", "share"),
    [
        (103.0, 7.0, 1.0, 9.0, 0.5),  # two CPU seconds of others, while own threads waited
        (103.0, 7.0, 1.0, math.inf, 0.5),  # how long they waited is unknown
        (103.0, 7.0, 1.0, 0.4, 0.1),  # others mostly used CPUs that the trial did not want
        (103.0, 7.0, 1.0, 0.0, 0.0),
        (101.0, 7.0, 1.2, 9.0, 0.0),  # own threads waited for each other
        (101.0, 8.0, 1.0, 0.0, 0.25),  # stolen time shows in nobody's waiting
    ],
)
def test_time_is_taken_where_others_ran_while_the_trial_waited(
    busy: float, stolen: float, own: float, waited: float, share: float
) -> None:
    assert taken_share(BEFORE, MachineCpu(busy, stolen, 4), own, waited, seconds=1.0) == pytest.approx(share)
    assert taken_share(BEFORE, MachineCpu(busy, stolen, 4), own, waited, seconds=0.0) == 0.0


def test_a_busy_neighbour_on_the_same_cpu_is_seen_and_an_idle_machine_is_not() -> None:
    """A thread that spins beside another one on its only CPU waits about half of the time."""
    cpus = os.sched_getaffinity(0)
    spin = f"import os; os.sched_setaffinity(0, {{{min(cpus)}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE, start_new_session=True) as neighbour:
        not_none(neighbour.stdout).readline()
        os.sched_setaffinity(0, {min(cpus)})
        try:
            before, began = tree_use(), time.process_time()
            while time.process_time() - began < 0.3:
                pass
            waited = tree_use().waited_since(before)
        finally:
            os.sched_setaffinity(0, cpus)
            neighbour.kill()
    assert waited > 0.05


def test_what_a_thread_waited_before_it_was_first_seen_counts() -> None:
    before, after = TreeUse(waits={1: 5.0}), TreeUse(waits={1: 5.5, 2: 0.25})
    assert after.waited_since(before) == pytest.approx(0.75)
    assert TreeUse().waited_since(before) == math.inf


QUOTAS = [("0::/\n", "", 7), ("0::/pod/one\n", "pod/one/", 7), ("0::/pod/one\n", "pod/", 7)]
QUOTAS += [("4:memory:/\n3:cpu,cpuacct:/pod\n", "cpu,cpuacct/pod/", 7), ("4:memory:/pod\n", "memory/pod/", 0)]


@pytest.mark.parametrize(("own", "group", "stops"), QUOTAS)
def test_a_cycle_that_a_quota_stopped_does_not_say_what_others_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, group: str, stops: int
) -> None:
    write(tmp_path, "own", own)
    write(tmp_path, f"{group}cpu.stat", "usage_usec 5\nnr_periods 9\nnr_throttled 7\nthrottled_usec 3\n")
    monkeypatch.setattr(guard, "throttled", functools.partial(guard.throttled, tmp_path / "own", tmp_path))
    assert guard.throttled() == stops
    clock = ClockGuard(Kernel(*[1.0] * 4))
    clock.before()
    assert clock.after().outside_cpu is not None
    clock.before()
    write(tmp_path, f"{group}cpu.stat", "nr_throttled 8\n")
    assert (clock.after().outside_cpu is None) is bool(stops)


def test_the_machine_and_the_tree_count_the_same_kind_of_seconds() -> None:
    counted = not_none(machine_cpu())
    assert counted.cpus >= 1
    assert tree_use().cpu <= counted.busy + 1.0


def test_children_belong_to_the_tree() -> None:
    code = "import time; x = bytearray(64 << 20); print(flush=True); s = time.process_time()\n"
    code += "while time.process_time() - s < 0.3: pass\nprint(flush=True); time.sleep(600)"
    before, faults = tree_use().cpu, tree_use().minor_faults
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in descendants(os.getpid())
        assert pss(child.pid) > 60 << 20
        child.stdout.readline()
        assert tree_use().cpu - before > 0.2
        child.kill()
    wait_for(lambda: child.pid not in descendants(os.getpid()), "its end")
    assert tree_use().cpu - before > 0.2  # it is reaped, and its seconds are still the tree's
    assert tree_use().minor_faults - faults > 100, "so many pages the least process touches"
    assert pss(child.pid) == 0


def test_sizes_of_this_process_are_plausible() -> None:
    assert 0 < status_bytes("VmRSS") <= status_bytes("VmHWM") + (1 << 20)
    assert status_bytes("VmNonsense") == 0
