"""What a slice has room for, and that nothing finished is ever lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.domain import FailureReason, Outcome, Peaks, Trial
from autotune.errors import UsageError
from benchmarks.gpu import journal
from benchmarks.gpu.slices import FIRST_S, Slice, cut_short, may_start, predicted, whole
from tests.support import factories

ROOM = 500.0


def test_a_trial_is_started_only_if_it_fits() -> None:
    assert may_start(100, 101, ROOM)
    assert not may_start(100, 99, ROOM)


def test_one_that_is_longer_than_a_slice_has_a_fresh_slice_to_itself() -> None:
    """Else the run would never end, each call saying that it does not fit."""
    assert may_start(10_000, ROOM, ROOM)
    assert not may_start(10_000, ROOM / 2, ROOM)


@pytest.mark.parametrize("left", [ROOM, 0.85 * ROOM])
def test_a_trial_that_was_let_in_whatever_it_takes_is_judged_by_its_own_end(left: float) -> None:
    """Whoever may start without fitting must not be run again for not having fitted: that would go on for ever."""
    assert may_start(10_000, left, ROOM)
    assert whole(left, ROOM)
    assert not cut_short(Outcome(reason=FailureReason.TIMEOUT), left, ROOM)


def test_a_trial_the_slice_ended_says_nothing() -> None:
    assert cut_short(Outcome(reason=FailureReason.TIMEOUT), 200, ROOM)
    assert cut_short(Outcome(reason=FailureReason.CANCELLED), ROOM, ROOM)
    assert not cut_short(Outcome(reason=FailureReason.OOM), 200, ROOM)
    assert not cut_short(Outcome(), 200, ROOM)


def test_a_slice_ends_before_its_time_is_up() -> None:
    part = Slice(began=1000.0, seconds=540.0)
    assert part.left(1000.0) == part.room < 540
    assert part.left(1400.0) == part.room - 400


def test_a_prediction_is_of_the_same_engine() -> None:
    """vLLM takes a minute to start, transformers generation none: one must not be taken for the other."""
    slow = factories.configuration(rollout_engine="vllm")
    quick = factories.configuration(rollout_engine="transformers")
    trials = (
        factories.finished(0, configuration=quick, seconds=40.0),
        factories.finished(1, configuration=slow, seconds=200.0),
    )
    protocol = factories.protocol()
    other = quick.with_(micro_batch_size=4)
    assert predicted((), quick, protocol) == FIRST_S
    assert predicted(trials, other, protocol) < predicted(trials, other.with_(rollout_engine="vllm"), protocol)
    assert predicted(trials, other, protocol) >= 40


def kept(path: Path, numbers: range) -> None:
    for number in numbers:
        journal.append(path, journal.row_of(factories.finished(number), "design"))


def test_a_trial_survives_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    peaks = {"update": Peaks(device_allocated=1, device_reserved=2, device_used=3, host=4)}
    trial = factories.finished(3, cycle_seconds=[9.0, 10.0, 11.0]).with_(pair=1)
    trial = trial.with_(cycles=tuple(factories.cycle(n, peaks=peaks) for n in range(3)))
    failed = factories.failed(4)
    for one in (trial, failed):
        journal.append(path, journal.row_of(one, "confirm"))
    back, lost = [journal.trial_of(row, str(path)) for row in journal.rows(path)]
    assert same(back) == same(trial)
    assert (back.pair, back.worst_case_passed, back.feasible) == (1, True, True)
    assert back.cycles[0].peaks == peaks
    assert lost.outcome is not None
    assert failed.outcome is not None
    assert lost.outcome.sentence() == failed.outcome.sentence()
    assert not lost.feasible


def same(trial: Trial) -> tuple[object, ...]:
    return (trial.number, trial.kind, trial.configuration, trial.state, trial.tokens_per_hour, trial.startup)


@pytest.mark.parametrize("torn", [b'{"number": 3, "rol', b"{", b"\xff\xfe", b'{"number": 3}\n{"numb'])
def test_a_line_torn_by_a_kill_costs_that_line_alone(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "trials.jsonl"
    kept(path, range(3))
    whole_lines = path.read_bytes()
    path.write_bytes(whole_lines + torn)
    kept(path, range(3, 5))
    numbers = [row["number"] for row in journal.rows(path) if "role" in row]
    assert numbers == [0, 1, 2, 3, 4]


def test_a_line_of_something_else_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    journal.append(path, {"number": 1})
    with pytest.raises(UsageError, match=r"trials\.jsonl: a line is no trial"):
        [journal.trial_of(row, str(path)) for row in journal.rows(path)]


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert list(journal.rows(tmp_path / "none")) == []
