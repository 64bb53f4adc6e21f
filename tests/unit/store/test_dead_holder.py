"""A tuner whose machine is gone does not keep its study; one that lives does, and one that was taken for dead writes
nothing more."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.domain import StudyStatus
from autotune.errors import StudyBusyError
from autotune.store import locks, open_store
from tests.contracts.store_cases import begin
from tests.support.waiting import wait_for


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "SILENT_S", 1.0)
    monkeypatch.setattr(locks, "LOOK_S", 0.02)
    return tmp_path / "studies.db"


def _elsewhere(path: Path) -> Path:
    """The holder file, as if the holder were on another machine."""
    holder = path.with_name(f"{path.name}.study-1.holder")
    holder.write_text(json.dumps({**json.loads(holder.read_text()), "host": "node-7"}))
    return holder


@contextmanager
def _living(holder: Path) -> Iterator[None]:
    """The tuner elsewhere shows that it lives."""
    over = threading.Event()

    def live() -> None:
        while not over.wait(0.05):
            os.utime(holder)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_study_of_a_machine_that_is_gone_is_taken_over(path: Path) -> None:
    """Its lock is still there, as on a file server that waits for it."""
    gone, store = open_store(path), open_store(path)
    begin(gone)
    with gone.lock(1):
        _elsewhere(path)
        with store.lock(1):
            store.set_status(1, StudyStatus.DONE)
            with pytest.raises(StudyBusyError, match=f"process {os.getpid()}"), open_store(path).lock(1):
                pytest.fail("two tuners hold one study")
            with pytest.raises(StudyBusyError):
                gone.set_status(1, StudyStatus.OPEN)
            assert store.study(1).status is StudyStatus.DONE
    gone.close()
    store.close()


def test_who_was_taken_for_dead_does_not_remove_the_name_of_the_next(path: Path) -> None:
    gone, store = open_store(path), open_store(path)
    begin(gone)
    old, new = gone.lock(1), store.lock(1)
    old.__enter__()
    holder = _elsewhere(path)
    with new:
        old.__exit__()
        assert json.loads(holder.read_text())["pid"] == os.getpid()
        store.set_status(1, StudyStatus.DONE)
    assert not holder.exists()


def test_a_machine_that_lives_keeps_its_study(path: Path) -> None:
    living, store = open_store(path), open_store(path)
    begin(living)
    with living.lock(1), _living(_elsewhere(path)), pytest.raises(StudyBusyError, match="node-7"), store.lock(1):
        pytest.fail("the study was taken from a tuner that lives")


def test_a_lock_that_two_machines_can_take_does_not_give_a_study_to_both(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where locks hold on one machine only, the lock is free here while the other machine's tuner lives."""
    store = open_store(path)
    begin(store)
    with store.lock(1):
        holder = _elsewhere(path)
        other = holder.read_text()
    holder.write_text(other)
    with _living(holder), pytest.raises(StudyBusyError, match="node-7"), store.lock(1):
        pytest.fail("two machines run one study")
    with store.lock(1):  # and when it lives no more
        assert json.loads(holder.read_text())["pid"] == os.getpid()
    assert [r.message for r in caplog.records if "node-7 since" in r.message and "still runs" in r.message]
    store.close()


def test_a_holder_shows_that_it_lives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_S", 0.02)
    store = open_store(path)
    begin(store)
    with store.lock(1):
        holder = path.with_name(f"{path.name}.study-1.holder")
        os.utime(holder, (0, 0))
        wait_for(lambda: holder.stat().st_mtime > time.time() - 600, "the holder's next sign of life")


def test_nobody_waits_longer_than_a_minute_and_a_living_holder_is_not_missed() -> None:
    assert locks.SILENT_S <= 55.0
    assert locks.SILENT_S >= 4 * locks.BEAT_S
