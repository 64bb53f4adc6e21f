"""What a container leaves out: by its limits, its folders, its list of users, its first process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.cli.doctor.findings import Verdict
from autotune.cli.doctor.machine_checks import check_surroundings
from autotune.machine import hardware, other_load, surroundings
from autotune.machine.hardware import Files
from autotune.machine.surroundings import Surroundings
from autotune.running import launch, proc
from tests.support.imports import of
from tests.support.made_up_files import write

GIB = 1 << 30
PLAIN = Surroundings(8 * GIB, 65536, None, "/home/me", True, True, True, 0)


def files(root: Path) -> Files:
    return Files(root / "proc", root / "cgroup")


def test_a_plain_machine_lacks_nothing() -> None:
    assert check_surroundings(PLAIN, gpus=8) == []


@pytest.mark.parametrize(("changes", "named", "option"), of("what_is_missing_is_named_with_the_option_that_mends_it"))
def test_what_is_missing_is_named_with_the_option_that_mends_it(
    changes: dict[str, object], named: str, option: str
) -> None:
    (found,) = check_surroundings(replace(PLAIN, **changes), gpus=8)  # type: ignore[arg-type]
    assert found.name == named
    assert option in f"{found.detail} {found.command}"


def test_little_shared_memory_stops_several_gpus_only() -> None:
    little = replace(PLAIN, shared_memory=64 << 20, locked_memory=1)
    assert [f.verdict for f in check_surroundings(little, gpus=1)] == [Verdict.WARNING]
    assert check_surroundings(little, gpus=2)[0].verdict is Verdict.PROBLEM


def test_this_machine_can_be_read() -> None:
    here = surroundings.look()
    assert here.open_files > 0
    assert here.temporary


def test_a_user_without_a_name_has_the_home_that_is_set_or_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 2_000_000_001)
    assert surroundings.home_of({}) == ""
    assert surroundings.home_of({"HOME": str(tmp_path)}) == str(tmp_path)
    nowhere = surroundings.look({})
    assert (nowhere.home, nowhere.home_usable, nowhere.named) == ("", False, False)
    given = launch.child_environment({"HOME": str(tmp_path), "PATH": "/bin"}, "tag")
    assert (given["USER"], given["HOME"]) == ("user2000000001", str(tmp_path))
    assert Path(launch.child_environment({}, "tag")["HOME"]).is_dir()
    assert launch.child_environment({"USER": "me"}, "tag")["USER"] == "me"


def test_a_user_with_a_name_keeps_its_environment() -> None:
    assert {"USER", "HOME"}.isdisjoint(launch.child_environment({}, "tag"))


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("0::/job\n", ("memory.max", "memory.current", "inactive_file")),
        ("4:memory:/job\n", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
)
def test_what_is_available_ends_at_the_control_groups_limit(
    tmp_path: Path, group: str, names: tuple[str, str, str]
) -> None:
    write(tmp_path, "proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {32 * GIB // 1024} kB\n")
    write(tmp_path, "proc/self/cgroup", group)
    assert other_load.available_memory(files(tmp_path)) == 32 * GIB
    folder = "cgroup/job" if group.startswith("0") else "cgroup/memory/job"
    write(tmp_path, f"{folder}/{names[0]}", str(6 * GIB))
    write(tmp_path, f"{folder}/{names[1]}", str(5 * GIB))
    write(tmp_path, f"{folder}/memory.stat", f"anon 1\n{names[2]} {2 * GIB}\n")
    assert hardware.usable_memory(files(tmp_path)) == 6 * GIB
    assert other_load.available_memory(files(tmp_path)) == 3 * GIB


def test_kills_are_counted_by_the_own_group_where_it_tells(tmp_path: Path) -> None:
    write(tmp_path, "proc/vmstat", "nr_free_pages 7\noom_kill 9\n")
    assert proc.oom_kills(files(tmp_path)) == 9
    write(tmp_path, "proc/self/cgroup", "0::/job\n")
    assert proc.oom_kills(files(tmp_path)) == 9, "a group without the file"
    write(tmp_path, "cgroup/job/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert proc.oom_kills(files(tmp_path)) == 2
    write(tmp_path, "proc/self/cgroup", "4:memory:/old\n")
    write(tmp_path, "cgroup/memory/old/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert proc.oom_kills(files(tmp_path)) == 5


def test_only_dead_children_of_the_first_process_count(tmp_path: Path) -> None:
    write(tmp_path, "proc/7/stat", "7 (a (b) Z) Z 1 7 7 0 -1\n")
    write(tmp_path, "proc/8/stat", "8 (c) Z 7 7 7 0 -1\n")
    write(tmp_path, "proc/9/stat", "9 (d) S 1 7 7 0 -1\n")
    write(tmp_path, "proc/10/stat", "")
    assert surroundings.look({}, files(tmp_path)).zombies == 1
