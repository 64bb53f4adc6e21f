"""A visit to a machine with a GPU: what fits is run, what ended is kept, and a kill leaves no process."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import holder, visit
from benchmarks.gpu.visit import Places, Stage, Visit, plan

KILLS = 30
SPEED = 100.0
PATIENCE_S = 60.0


def places(folder: Path) -> Places:
    given = visit.parser().parse_args(["--out", str(folder / "out"), "--work", str(folder / "work")])
    for made in (given.out, given.work):
        made.mkdir(exist_ok=True)
    return Places(given)


def lines(out: Path) -> list[dict[str, Any]]:
    """Of the journal; a last line may be torn."""
    path = out / "visit.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_every_gpu_test_is_in_the_plan_and_those_that_no_gpu_has_run_come_first(tmp_path: Path) -> None:
    there = {path.name for path in (visit.ROOT / "tests" / "gpu").glob("test_*.py")}
    assert {name for name, _ in visit.TESTS} == there
    names = [stage.name for stage in plan(places(tmp_path))]
    assert len(names) == len(set(names))
    assert names.index("compiled") < names.index("study") < names.index("tests-parity_on_device")


def test_stages_have_the_variables_of_the_unpacked_packages_and_no_path_of_modules(tmp_path: Path) -> None:
    at = places(tmp_path)
    words = "export PYTHONPATH=/site SAMPLER='0 or = 1'"
    kit = Stage("packages", 30, ("sh", "-c", f'mkdir -p {at.work}/kit; echo "{words}" > {at.work}/kit/env.sh'))
    told = Stage("told", 30, ("sh", "-c", 'echo "$SAMPLER, ${PYTHONPATH-none}, $OWN"'), environment={"OWN": "mine"})
    Visit(at, 500.0).run([kit, told])
    assert (at.out / "told.log").read_text() == "0 or = 1, none, mine\n"


@pytest.mark.parametrize(("setup", "asks", "budget"), [(0.1, True, 480), (1.0, False, 473), (2.0, False, 373)])
def test_the_study_starts_with_what_is_left_of_its_time(tmp_path: Path, setup: float, asks: bool, budget: int) -> None:
    at, asked = places(tmp_path), Stage("questions", 75, ("true",), least=20)
    study = Stage("study", 495, ("echo", "{left}"), least=315, first=True)
    Visit(at, 600.0, SPEED).run([Stage("model", 300, ("sleep", str(setup)), least=10), asked, study])
    begun = [line["stage"] for line in lines(at.out) if line["event"] == "begins"]
    assert ("questions" in begun) is asks
    assert budget - 73 < int((at.out / "study.log").read_text()) <= budget


def alive(tag: str) -> list[int]:
    """Processes that carry the tag in their environment; those that are ending do not count."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"VISIT_TEST={tag}".encode() in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found


def gone(tag: str) -> bool:
    end = time.monotonic() + PATIENCE_S
    while alive(tag):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def begun(folder: Path, tag: str) -> subprocess.Popen[bytes]:
    words = ["--out", str(folder / "out"), "--work", str(folder / "work"), "--dry", str(SPEED), "--limit", "6000"]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu.visit", *words],
        cwd=visit.ROOT, env={**os.environ, "VISIT_TEST": tag}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_killed_at_any_moment_it_loses_the_running_stage_and_leaves_no_process(tmp_path: Path) -> None:
    chance = random.Random(51)
    runs = []
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs.append((chance.uniform(0.2, 12.0), folder, f"{tmp_path.name}-{number}-{os.getpid()}"))
    running = [(time.monotonic() + after, folder, tag, begun(folder, tag)) for after, folder, tag in runs]
    ended = 0
    for moment, folder, tag, process in sorted(running, key=lambda run: run[0]):
        time.sleep(max(0.0, moment - time.monotonic()))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert gone(tag), [Path("/proc", str(pid), "cmdline").read_bytes() for pid in alive(tag)]
        events = lines(folder / "out")
        whole = [line["stage"] for line in events if line["event"] == "ended" and line["stage"] != "visit"]
        started = [line["stage"] for line in events if line["event"] == "begins"]
        assert len(started) - len(whole) in (0, 1)
        for stage in whole:
            assert (folder / "out" / f"{stage}.log").read_text().splitlines() == [
                f"{stage} begins",
                f"{stage} is whole",
            ]
        ended += len(whole)
    assert ended > KILLS, "something had ended before it was killed"


def test_asked_to_end_it_ends_its_stage_and_says_so(tmp_path: Path) -> None:
    tag = f"{tmp_path.name}-{os.getpid()}"
    process = begun(tmp_path, tag)
    end = time.monotonic() + PATIENCE_S
    while not any(line["event"] == "begins" for line in lines(tmp_path / "out")):
        assert time.monotonic() < end, process.stderr
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert lines(tmp_path / "out")[-1]["event"] == "ended"
    assert gone(tag)


STUBBORN = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & echo there; sleep 1000"


def test_a_stage_whose_time_is_over_ends_with_all_it_started_though_it_does_not_want_to() -> None:
    tag = f"stubborn-{os.getpid()}"
    argv = [sys.executable, holder.__file__, "3", "0.2", "sh", "-c", STUBBORN]
    environment = {**os.environ, "VISIT_TEST": tag}
    with subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.wait(60) == 124
        assert process.stdout is not None
        assert process.stdout.read() == b"there\n"
    assert gone(tag)


def test_a_copy_holds_the_database_and_the_records_and_no_scratch(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    attempt = home / "runs" / "1-study" / "0" / "1"
    (attempt / "scratch").mkdir(parents=True)
    out.mkdir()
    (attempt / "metrics.jsonl").write_text("{}\n")
    (attempt / "scratch" / "left.json").write_text("{}")
    (attempt / "weights.safetensors").write_text("w")
    database = sqlite3.connect(home / "autotune.sqlite")
    database.execute("create table t (x)")
    database.execute("insert into t values (7)")
    database.commit()
    visit.copy(home, out)
    visit.copy(home, out)
    assert sqlite3.connect(out / "autotune.sqlite").execute("select x from t").fetchall() == [(7,)]
    kept = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert kept == ["autotune.sqlite", "runs/1-study/0/1/metrics.jsonl"]
    database.close()
