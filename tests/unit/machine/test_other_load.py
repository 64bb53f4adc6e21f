"""What else the machine does, by the kernel's counters."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.machine import other_load
from autotune.machine.hardware import Files
from tests.support.made_up_files import write
from tests.support.not_none import not_none


def _stat(root: Path, user: int, idle: int, processes: dict[int, tuple[str, int]]) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice: guest time is in user time already
    write(root, "proc/stat", f"cpu  {user} 0 0 {idle} 0 0 0 0 999 0\ncpu0 1 0 0 0\ncpu1 1 0 0 0\nintr 1\n")
    for pid, (name, ticks) in processes.items():
        fields = " ".join(["S", *["0"] * 10, str(ticks), "0", *["0"] * 5])
        write(root, f"proc/{pid}/stat", f"{pid} ({name}) {fields}\n")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "sys")


def test_the_share_of_the_cpu_and_who_takes_it(tmp_path: Path, files: Files) -> None:
    mine = os.getpid()
    _stat(tmp_path, 0, 0, {7: ("a) (b", 0), 8: ("calm", 0), mine: ("ours", 0)})

    def later(_: float) -> None:
        _stat(tmp_path, 150, 50, {7: ("a) (b", 80), 8: ("calm", 1), mine: ("ours", 60)})

    found = not_none(other_load.sample_load(later, files))
    assert found.share == pytest.approx(0.75)
    assert found.busiest == ((7, "a) (b", 0.8),)


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu a b c d e\n", "garbage"])
def test_a_kernel_that_does_not_tell(tmp_path: Path, files: Files, text: str) -> None:
    write(tmp_path, "proc/stat", text)
    assert other_load.sample_load(lambda _: None, files) is None
    assert other_load.TakenTime(files).total(0, ()) is None


@pytest.mark.parametrize(("waited_s", "taken_s"), [(100.0, 5.0), (2.0, 1.0), (0.0, 0.0), (None, 5.0)])
def test_what_others_used_counts_as_far_as_our_threads_waited(
    tmp_path: Path, files: Files, waited_s: float | None, taken_s: float
) -> None:
    tick, taken = os.sysconf("SC_CLK_TCK"), other_load.TakenTime(files)
    for used, own, waits, expected in ((1500, 500, 0.0, 0.0), (1520, 510, waited_s, taken_s)):  # 20 s, 10 of them ours
        _stat(tmp_path, used * tick, 10**6, {})
        if waited_s is not None:
            write(tmp_path, "proc/7/task/8/schedstat", f"5 {int((1 + (waits or 0)) * 1e9)} 7\n")
        assert taken.total(own * tick, (7,)) == pytest.approx(expected)  # of two CPUs


def test_no_time_passed_says_nothing(tmp_path: Path, files: Files) -> None:
    _stat(tmp_path, 10, 10, {})
    assert other_load.sample_load(lambda _: None, files) is None


def test_governors_and_memory(tmp_path: Path, files: Files) -> None:
    assert other_load.governors(files) == ()
    for cpu, name in (("cpu0", "powersave"), ("cpu1", "performance"), ("cpu10", "powersave")):
        write(tmp_path, f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor", f"{name}\n")
    assert other_load.governors(files) == ("performance", "powersave")
    assert other_load.available_memory(files) is None
    write(tmp_path, "proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   40 kB\n")
    assert other_load.available_memory(files) == 40 * 1024


def test_on_this_machine_a_busy_process_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as process:
        try:
            found = other_load.sample_load(time.sleep, seconds=0.5)
            name = other_load.process_name(process.pid)
        finally:
            process.kill()
    assert not_none(found).share > 0
    assert name
