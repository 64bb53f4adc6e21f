"""The same configuration again and again: the order of the runs, and the spread they show."""

from __future__ import annotations

import math

import pytest

from autotune.domain import Configuration, FailureReason, Trial, TrialKind
from autotune.verify import repeats
from autotune.verify.sentences import spread_lines
from tests.support import factories as f

STUDY = f.study()
BASELINE = STUDY.spec.baseline
LEADER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)


def run(number: int, configuration: Configuration, seconds: float | list[float] = 10.0) -> Trial:
    draft = repeats.draft(STUDY, (), configuration)
    return f.finished(number, kind=draft.kind, configuration=configuration, source=draft.source, cycle_seconds=seconds)


def play(trials: list[Trial], times: int) -> list[Configuration]:
    ran: list[Configuration] = []
    while (one := repeats.next_run(STUDY, trials, LEADER, times)) is not None:
        assert len(ran) < 50
        ran.append(one)
        trials.append(run(len(trials), one))
    return ran


def test_configuration_and_baseline_take_turns_and_the_order_turns() -> None:
    assert play([f.finished(0)], 3) == [LEADER, BASELINE, BASELINE, LEADER, LEADER, BASELINE]


def test_what_an_earlier_call_measured_counts() -> None:
    trials = [f.finished(0), run(1, LEADER), run(2, BASELINE), run(3, BASELINE)]
    assert play(trials, 3) == [LEADER, LEADER, BASELINE]
    assert play(trials, 3) == []
    assert play(trials, 4) == [BASELINE, LEADER]


def test_search_trials_and_confirmations_are_no_repetitions() -> None:
    others = [f.finished(1, configuration=LEADER), f.finished(2, kind=TrialKind.CONFIRM, configuration=LEADER, pair=0)]
    assert repeats.next_run(STUDY, others, LEADER, 1) == LEADER
    assert repeats.spread(others, LEADER, BASELINE) is None


def test_a_baseline_that_fails_is_left_out_and_a_broken_run_is_done_again() -> None:
    assert play([f.failed(0, configuration=BASELINE)], 2) == [LEADER, LEADER]
    broken = f.failed(1, f.failure(FailureReason.INFRA), configuration=LEADER, source=repeats.SOURCE)
    assert play([f.finished(0), broken], 1) == [LEADER, BASELINE]


def test_the_baseline_itself_is_repeated_alone() -> None:
    assert repeats.next_run(STUDY, [run(1, BASELINE)], BASELINE, 2) == BASELINE
    assert repeats.next_run(STUDY, [run(1, BASELINE), run(2, BASELINE)], BASELINE, 2) is None


def test_the_spread_tells_processes_from_cycles() -> None:
    """Processes 4 % apart whose cycles are alike: all of it is between them."""
    trials = [run(1, LEADER, 10.0), run(2, LEADER, 10.4), run(3, LEADER, 9.6)]
    one = repeats.spread(trials, LEADER, BASELINE)
    assert one is not None
    assert one.within == pytest.approx(0.0)
    assert one.between == pytest.approx(one.of_processes)
    assert one.between == pytest.approx(0.04, rel=0.02)
    assert (one.runs, one.cycles, one.trials) == (3, 9, (1, 2, 3))
    assert one.low < one.tokens_per_hour < one.high


def test_cycles_that_scatter_inside_every_process_are_no_difference_of_processes() -> None:
    trials = [run(n, LEADER, [9.0, 10.0, 11.0]) for n in range(1, 4)]
    one = repeats.spread(trials, LEADER, BASELINE)
    assert one is not None
    assert one.between == pytest.approx(0.0)
    assert one.of_processes == 0.0
    assert one.within == pytest.approx(math.log(11 / 9) / 2, rel=0.02)


def test_what_the_machine_does_to_both_is_not_in_their_ratio() -> None:
    pairs = [(run(2 * n, LEADER, s), run(2 * n + 1, BASELINE, 2 * s)) for n, s in enumerate((10.0, 14.0, 8.0), 1)]
    trials = [t for pair in pairs for t in pair]
    one, base = (repeats.spread(trials, c, BASELINE) for c in (LEADER, BASELINE))
    assert one is not None
    assert base is not None
    assert one.beside == pytest.approx(0.0, abs=1e-9)
    assert base.beside is None
    assert [s.configuration for s in repeats.spreads(STUDY, trials)] == [LEADER, BASELINE]


def test_one_run_has_no_deviation_and_says_unknown() -> None:
    one = repeats.spread([run(1, LEADER)], LEADER, BASELINE)
    assert one is not None
    assert one.between is None
    assert "standard deviation of a run unknown" in "\n".join(spread_lines(one, BASELINE))
