"""Logs as they are on disk: growing, cut, replaced, huge, of another kind."""

from __future__ import annotations

import json
import os
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.watch.log_file import CHUNK, LogFile
from tests.unit.watch.test_series import trl, verl


def numbers(file: LogFile) -> list[int]:
    return [step.number for step in file.series.steps]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text("".join(f"{verl(i, 100.0)}\n" for i in range(1, 6)))
    return path


def append(log: Path, text: str) -> None:
    with log.open("a") as stream:
        stream.write(text)


def test_a_log_that_grows_is_read_on_and_half_a_line_waits(log: Path) -> None:
    file = LogFile(log)
    file.poll()
    append(log, verl(6, 100.0)[:20])
    file.poll()
    assert numbers(file) == [1, 2, 3, 4, 5]
    append(log, verl(6, 100.0)[20:])
    file.poll()
    assert numbers(file) == [1, 2, 3, 4, 5]
    file.close()
    assert numbers(file) == [1, 2, 3, 4, 5, 6]


def test_carriage_returns_of_a_progress_bar_end_lines(tmp_path: Path) -> None:
    bars = [f"\r{i}%|█| {i}/100 [{i:02d}:00<9:00, 60s/it]" for i in range(1, 4)]
    (tmp_path / "train.log").write_text("".join(f"{bar}{' ' * 30}{trl(0, 99.0, i / 10)}" for i, bar in enumerate(bars)))
    file = LogFile(tmp_path / "train.log")
    file.poll()
    file.close()
    assert numbers(file) == [1, 2, 3]


@pytest.mark.parametrize("how", ["was cut", "was replaced"])
def test_a_log_that_is_cut_or_rotated_is_told_and_read_from_its_beginning(log: Path, how: str) -> None:
    file = LogFile(log)
    assert file.poll() == ""
    if how == "was replaced":
        log.rename(log.with_suffix(".1"))
    log.write_text(f"{verl(6, 100.0)}\n")
    assert how in file.poll()
    assert numbers(file) == [1, 2, 3, 4, 5, 6]
    assert not file.series.restarts


def test_a_state_that_the_trainer_saves_again_is_no_conflict(tmp_path: Path) -> None:
    file = LogFile(tmp_path)
    for count in (5, 10, 15, 20, 25, 30, 35, 40):
        folder = tmp_path / f"checkpoint-{count}"
        folder.mkdir()
        history = [{"completions/mean_length": 90.0 + i, "step": i, "step_time": 2.0} for i in range(1, count + 1)]
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": history}, indent=2, sort_keys=True))
        os.utime(folder / "trainer_state.json", (count, count))
        file.poll()
        assert numbers(file) == list(range(1, count + 1))
    assert not file.series.mixed
    assert not file.series.restarts


def test_a_huge_log_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as stream:
        stream.write(f"{verl(1, 100.0)}\n".encode())
        stream.seek(200 * CHUNK)  # one endless line
        stream.write(f"\n{verl(2, 100.0)}\n".encode())
        for i in range(3, 2000):
            stream.write(f"{'x' * 5000}\n{verl(i, 100.0)}\n".encode())
    tracemalloc.start()
    try:
        file = LogFile(path)
        file.poll()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert numbers(file) == list(range(1, 2000))
    assert peak < 40 * CHUNK


def trackio(path: Path, runs: dict[str, int], encode: str = "train/") -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"
        )
        for name, steps in runs.items():
            for step in range(steps):
                figures = {"completions/mean_length": 50.0 + step, "step_time": 3.0, "global_step": step + 1}
                metrics = json.dumps({f"{encode}{key}": value for key, value in figures.items()})
                row = ("2026-01-01T00:00:00", name, step, metrics)
                database.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)


def test_the_newest_run_of_trackio_is_read_or_the_named_one(tmp_path: Path) -> None:
    path = tmp_path / "project.db"
    trackio(path, {"old": 4, "new": 7})
    newest, named, absent = LogFile(path), LogFile(path, "old"), LogFile(path, "other")
    newest.poll()
    newest.poll()
    named.poll()
    assert numbers(newest) == list(range(1, 8))
    assert numbers(named) == list(range(1, 5))
    with pytest.raises(UsageError, match="has no run other; it has old, new"):
        absent.poll()


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.log", None, "cannot be read: No such file"),
        ("events.out.tfevents.1.host.2.0", b"\x00", "TensorBoard's, which is not read"),
        ("other.db", b"SQLite format 3\x00" + b"\x00" * 100, "no database of Trackio"),
        ("folder/x.txt", b"", "is a folder without logging.jsonl or trainer_state.json"),
    ],
)
def test_what_cannot_be_watched_is_told_in_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        LogFile(path.parent if name.startswith("folder") else path).poll()


def test_binary_rubbish_gives_no_step(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(os.urandom(300_000))
    file = LogFile(tmp_path / "x.log")
    file.poll()
    file.close()
    assert numbers(file) == []
