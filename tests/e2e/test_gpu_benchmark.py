"""The GPU benchmark's command, tried on a CPU: killed in the middle, gone on with, finished."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.running import proc
from autotune.running.local import home_tag, study_tag
from autotune.tables import files
from tests.support.trl_trials import ROOT, environment, training_python

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.timeout(1500)]

TABLES = ROOT / "benchmarks" / "tables"


def command(out: Path, *words: str) -> list[str]:
    sizes = ("--trials", "3", "--rows", "16", "--completion", "24", "--prompt", "48", "--rounds", "1")
    named = ("--arch", "tiny", "--device", "cpu", "--out", str(out), "--python", training_python())
    return [sys.executable, "-m", "benchmarks.gpu", *named, *sizes, *words]


def lines(out: Path) -> list[str]:
    path = out / "trials.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def left_over(out: Path) -> list[int]:
    """Processes that still work for this run."""
    prefix = study_tag(home_tag(out / "home"), 1)
    return [pid for pid in proc.list_pids() if (proc.read_tag(pid) or "").startswith(prefix)]


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    out, before = tmp_path / "out", sorted(TABLES.iterdir())
    first = subprocess.Popen(
        command(out), cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 600
    while not (lines(out) and (out / "attempts" / "1-1" / "phase").exists()):
        assert first.poll() is None, first.stderr.read() if first.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = lines(out)
    assert len(kept) == 1
    for _ in range(4):
        ran = subprocess.run(command(out), cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        if "left:" not in ran.stdout:
            break
        assert "go on with:\n  python -m benchmarks.gpu --arch tiny" in ran.stdout
    whole = lines(out)
    assert whole[: len(kept)] == kept, "what was acknowledged before the kill has changed"
    rows = [json.loads(line) for line in whole]
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert rows[0]["role"] == "baseline"
    assert {row["role"] for row in rows[1:3]} <= {"competent", "design"}
    assert {row["role"] for row in rows[3:]} == {"confirm"}
    assert all(row["outcome"]["reason"] is None for row in rows), [row["outcome"] for row in rows]
    assert (out / "attempts" / "1-2").is_dir(), "the trial that was cut off is run again in a folder of its own"
    recorded = rows[0]["recorded_lengths"]
    assert len(recorded) == 16
    for row in rows[1:]:
        speed = [c for c in row["cycles"] if c["cycle_kind"] == "recorded" and c["accepted"]]
        assert {c["completion_tokens"] for c in speed} == {sum(recorded)}, "every trial meets the same lengths"
    searched, table, words = sorted(
        (out / "table").iterdir(), key=lambda p: (not p.name.startswith("search-"), p.suffix)
    )
    assert (table.suffix, words.suffix) == (".jsonl", ".md")
    numbers = [row.trial.number for row in files.read(searched).rows]
    assert numbers == [row["number"] for row in rows if row["role"] != "confirm"], "one row for each configuration"
    assert "says anything about a GPU" in words.read_text()
    assert sorted(TABLES.iterdir()) == before, "what was only tried stands among recorded tables"
    assert not left_over(out), "a process was left"
