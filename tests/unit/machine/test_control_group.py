"""Limits and counters of control groups, from the kernel's files of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.machine import control_group, other_load
from autotune.machine.control_group import Files

GIB = 1 << 30


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "sys")
    write(made.proc / "vmstat", "oom_kill_x 3\noom_kill 100\n")
    write(made.proc / "meminfo", f"MemTotal: {128 * GIB // 1024} kB\nMemAvailable: {100 * GIB // 1024} kB\n")
    return made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_a_group_the_machine_counts(files: Files) -> None:
    assert control_group.memory_limit(files) is None
    assert control_group.free_memory(files) is None
    assert control_group.oom_kills(files) == 100
    assert other_load.available_memory(files) == 100 * GIB


def test_version_2_counts_the_kills_of_this_group_and_not_of_the_neighbours(files: Files) -> None:
    write(files.proc / "self/cgroup", "0::/job/step\n")
    write(files.cgroup / "job/step/memory.events", "low 0\noom 9\noom_kill 2\noom_group_kill 0\n")
    write(files.cgroup / "job/memory.events", "oom_kill 7\n")
    assert control_group.oom_kills(files) == 2


def test_version_1_counts_the_kills_of_this_group(files: Files) -> None:
    write(files.proc / "self/cgroup", "4:memory:/job\n")
    write(files.cgroup / "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert control_group.oom_kills(files) == 5


def test_in_a_container_the_group_is_mounted_as_the_root(files: Files) -> None:
    """The kernel names it by its path outside, which is not there."""
    write(files.proc / "self/cgroup", "4:memory:/docker/0123\n")
    write(files.cgroup / "memory/memory.limit_in_bytes", str(6 * GIB))
    write(files.cgroup / "memory/memory.usage_in_bytes", str(2 * GIB))
    write(files.cgroup / "memory/memory.oom_control", "oom_kill 1\n")
    assert control_group.memory_limit(files) == 6 * GIB
    assert control_group.free_memory(files) == 4 * GIB
    assert control_group.oom_kills(files) == 1


def test_what_is_available_is_what_the_group_leaves(files: Files) -> None:
    write(files.proc / "self/cgroup", "0::/\n")
    write(files.cgroup / "memory.max", str(6 * GIB))
    write(files.cgroup / "memory.current", str(5 * GIB))
    write(files.cgroup / "memory.stat", f"anon {GIB}\ninactive_file {2 * GIB}\n")
    assert other_load.available_memory(files) == 3 * GIB
    write(files.cgroup / "memory.current", str(9 * GIB))
    assert other_load.available_memory(files) == 0
    write(files.cgroup / "memory.max", "max\n")
    assert other_load.available_memory(files) == 100 * GIB


def test_a_counter_that_cannot_be_read_is_passed_over(files: Files) -> None:
    write(files.proc / "self/cgroup", "0::/job\n")
    write(files.cgroup / "job/memory.events", "oom_kill many\n")
    assert control_group.oom_kills(files) == 100
