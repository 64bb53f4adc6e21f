"""A driver that answers late, never, or with an error."""

from __future__ import annotations

import threading

import pytest

from autotune.errors import MachineError
from autotune.running.gpu_guard import PatientCall


def test_an_answer_in_time_is_passed_on() -> None:
    call = PatientCall(lambda: (1, 2))
    assert call() == (1, 2)
    assert call.soon(30) == (1, 2)


def test_an_error_is_raised_where_the_answer_is_asked_for_and_the_next_call_is_a_new_one() -> None:
    answers = iter([MachineError("lost"), None])

    def ask() -> tuple[int, ...]:
        error = next(answers)
        if error is not None:
            raise error
        return (3,)

    call = PatientCall(ask)
    with pytest.raises(MachineError, match="lost"):
        call()
    assert call() == (3,)


def test_a_late_answer_holds_nobody_up_and_is_not_asked_for_twice() -> None:
    answered, asked = threading.Event(), list[int]()

    def slow() -> tuple[int, ...]:
        asked.append(1)
        answered.wait(60)
        return (4,)

    call = PatientCall(slow)
    assert [call.soon(0.01) for _ in range(3)] == [None, None, None]
    assert len(asked) == 1
    answered.set()
    assert call() == (4,)


def test_none_within_the_patience_is_a_named_problem() -> None:
    never = threading.Event()
    call = PatientCall(lambda: never.wait(60), patience_s=0.05)
    with pytest.raises(MachineError, match="GPU driver has not answered"):
        call()
    with pytest.raises(MachineError, match="GPU driver has not answered"):
        call.soon(0.01)
    never.set()
