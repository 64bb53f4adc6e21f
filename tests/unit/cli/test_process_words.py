"""Which process ran a trial, as `autotune show` says it."""

from __future__ import annotations

from autotune.cli.screens.trial import process_words
from trainer.child.contract import NoteRecord


def words(**notes: dict[str, object]) -> str:
    return process_words([NoteRecord("gpu_peaks", {"bytes": {}}), *(NoteRecord(n, d) for n, d in notes.items())])


def test_a_process_of_its_own_is_not_mentioned() -> None:
    assert words() == ""


def test_the_worker_its_trial_and_what_was_started() -> None:
    assert words(worker={"worker": "2", "number": 1, "floor": 9, "restarted": "process"}) == (
        "trial 1 of worker 2: its first"
    )
    later = {"worker": "2", "number": 3, "floor": 3 << 29, "restarted": "none"}
    assert words(worker=later) == "trial 3 of worker 2: nothing started anew, 1.50 GiB held before"


def test_why_it_was_ended_and_that_one_was_lost() -> None:
    said = words(
        worker={"worker": "3", "number": 1, "restarted": "process"},
        worker_lost={"worker": "2", "trials": 4},
        worker_replaced={"worker": "3", "why": "it holds \x1b[1m2 GiB"},
    )
    assert said.startswith("trial 1 of worker 3: its first; worker 2 had ended before it began with it; ended after it")
    assert "\x1b" not in said


def test_a_note_of_another_release_is_no_error() -> None:
    assert words(worker={"worker": "1"}) == "trial None of worker 1"
