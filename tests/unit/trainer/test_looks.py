"""The child's side of a look: what the parent said counts, and a parent that says nothing is not waited for."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from trainer.child.contract import CycleKind, Protocol, RunPaths, write_atomic
from trainer.child.cycles import CyclePlan
from trainer.child.journal import is_enough, read_answer


@pytest.mark.parametrize(
    ("answer", "enough"), [("4 end", True), ("4 go", False), ("5 go", False), ("2 end", True), ("9 end", True)]
)
def test_the_answer_to_this_cycle_or_an_end_to_an_earlier_one_counts(tmp_path: Path, answer: str, enough: bool) -> None:
    paths = RunPaths(tmp_path)
    write_atomic(paths.enough, answer)
    began = time.monotonic()
    assert is_enough(paths, 4, wait_s=60.0) is enough
    assert time.monotonic() - began < 30.0


@pytest.mark.parametrize("text", [None, "", "3 go", "go", "three go", "1 2 3", "\x00\x00"])
def test_a_parent_that_says_nothing_useful_is_not_waited_for(tmp_path: Path, text: str | None) -> None:
    paths = RunPaths(tmp_path)
    if text is not None:
        paths.enough.write_text(text)
    assert is_enough(paths, 4, wait_s=0.05) is False


def test_an_answer_that_comes_while_the_child_waits_is_taken(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    write_atomic(paths.enough, "3 go")
    timer = threading.Timer(0.05, write_atomic, (paths.enough, "4 end"))
    timer.start()
    assert is_enough(paths, 4, wait_s=60.0) is True
    timer.join()
    assert read_answer(paths) == (4, "end")


def test_a_plan_that_was_ended_has_no_next_cycle() -> None:
    plan = CyclePlan(Protocol(warmup=0, recorded=8, maximum=2, looks=(3, 5, 8)))
    assert plan.next() is CycleKind.RECORDED
    plan.judge(CycleKind.RECORDED, None)
    assert plan.next() is CycleKind.RECORDED
    plan.ended = True
    assert plan.next() is None
