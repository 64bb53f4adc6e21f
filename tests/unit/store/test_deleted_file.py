"""A database file that is deleted or replaced under a running tuner: the next write says so and is not made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.domain import StudyStatus
from autotune.errors import StoreError
from autotune.store import open_store
from tests.contracts.store_cases import begin
from tests.support import factories as make


def _delete(path: Path) -> None:
    path.unlink()


def _delete_all(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()


def _delete_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def _replace(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    os.replace(copy, path)


def _move(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


@pytest.mark.parametrize("harm", [_delete, _delete_all, _delete_log, _replace, _move])
@pytest.mark.parametrize("opened_again", [False, True])
def test_the_next_write_is_refused_in_a_sentence(
    tmp_path: Path, harm: Callable[[Path], None], opened_again: bool
) -> None:
    path = tmp_path / "studies.db"
    store = open_store(path)
    study = begin(store)
    if opened_again:
        store.close()
        store = open_store(path)
        store.set_status(study, StudyStatus.DONE)
    harm(path)
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.add_cycle(study, 0, 1, make.cycle(7))
        assert str(path) in str(caught.value)
        assert "while it was in use" in str(caught.value)
        assert caught.value.exit_code == 6
    store.close()


def test_what_is_deleted_between_check_and_commit_is_not_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "studies.db"
    store = open_store(path)
    study = begin(store)
    backend = store._backend  # type: ignore[attr-defined]  # the seam between the check and the commit
    before = backend.guard

    def guard(session: object) -> None:
        before(session)
        path.unlink()

    backend.guard = guard
    with pytest.raises(StoreError, match="was deleted"):
        store.set_status(study, StudyStatus.DONE)
    store.close()


def test_a_file_that_stays_is_written_by_several_at_once(tmp_path: Path) -> None:
    path = tmp_path / "studies.db"
    first, second = open_store(path), open_store(path)
    study = begin(first)
    for index in range(1, 5):
        (first, second)[index % 2].add_cycle(study, 0, 1, make.cycle(index))
    second.close()
    first.add_cycle(study, 0, 1, make.cycle(5))
    assert len(first.trial(study, 0).cycles) == 6
    first.close()
