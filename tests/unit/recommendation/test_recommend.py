"""What trials support, and how it is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import Configuration, CycleKind, Trial, TrialKind
from autotune.recommendation.reading import AnswerSource, answered
from autotune.recommendation.recommend import UNMEASURED_BY_BUDGET, recommend, unconfirmed
from autotune.statistics import evidence
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec()
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
IN_BF16 = f.configuration(precision="bf16")


def _confirmed(seconds: dict[object, float], rounds: int = 2, first: int = 10) -> list[Trial]:
    number, trials = first, []
    for pair in range(rounds):
        for configuration, value in seconds.items():
            trials.append(
                f.finished(
                    number,
                    configuration=configuration,
                    kind=TrialKind.CONFIRM,
                    pair=pair,
                    cycle_seconds=[value * 0.99, value, value * 1.01],
                )
            )
            number += 1
    return trials


def _searched() -> list[Trial]:
    return [
        f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]),
        f.finished(1, configuration=FASTER, cycle_seconds=[7.9, 8.0, 8.1]),
    ]


def test_a_proven_gain_is_recommended_with_its_evidence() -> None:
    trials = [*_searched(), *_confirmed({SPEC.baseline: 10.0, FASTER: 8.0})]
    found = not_none(recommend(SPEC, trials, "2 trials have been run"))
    row = found.rows[0]
    assert row.configuration == FASTER
    assert row.confirmed
    assert row.gain.value == pytest.approx(0.25, abs=0.01)
    assert row.gain.pairs == 2
    assert row.low < row.tokens_per_hour < row.high
    assert sum(row.phase_shares.values()) == pytest.approx(1.0)
    assert set(row.changes) == {"micro_batch_size: 2 -> 4", "gradient_accumulation_steps: 4 -> 2"}
    assert row.trials == (1, 11, 13)
    assert found.baseline == "ok"
    assert found.reference == 0


def test_an_answer_is_of_all_its_trials_where_the_clock_was_set_back() -> None:
    trials = [*_searched(), *_confirmed({SPEC.baseline: 10.0, FASTER: 8.0})]
    found = recommend(SPEC, trials, "", now=not_none(trials[-1].finished_at) - 300.0)
    assert answered(found, f.study(spec=SPEC), trials) == (AnswerSource.RECOMMENDATION, found)


def test_an_unproven_gain_keeps_the_baseline_and_says_what_was_measured() -> None:
    trials = [*_searched(), *_confirmed({SPEC.baseline: 10.0, FASTER: 9.97})]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.rows[0].configuration == SPEC.baseline
    assert found.rows[0].gain is None
    assert any("micro_batch_size 4" in note and "not recommended" in note for note in found.notes)


def test_what_one_round_confirmed_is_stated_with_an_interval_of_use() -> None:
    """The first trial of a study ran on a colder machine: that is no spread of what ran in the round."""
    slow_start = f.finished(0, cycle_seconds=[12.4, 12.5, 12.7])
    trials = [slow_start, *_searched()[1:], *_confirmed({SPEC.baseline: 10.0, FASTER: 5.0})[:2]]
    found = not_none(recommend(SPEC, trials, ""))
    row = found.rows[0]
    assert row.configuration == FASTER
    assert row.low > 0.8 * row.tokens_per_hour
    assert row.high < 1.25 * row.tokens_per_hour


def test_the_second_row_names_what_must_be_allowed() -> None:
    trials = [
        *_searched(),
        f.finished(2, configuration=IN_BF16, cycle_seconds=[4.9, 5.0, 5.1]),
        *_confirmed({SPEC.baseline: 10.0, FASTER: 8.0, IN_BF16: 5.0}),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert [row.configuration for row in found.rows] == [FASTER, IN_BF16]
    assert found.rows[1].title == "If you allow precision bf16"


def test_a_permitted_lead_that_is_not_proven_gives_no_second_row() -> None:
    noisy = [4.0, 10.0, 16.0]
    trials = [f.finished(0, cycle_seconds=noisy), f.finished(1, configuration=IN_BF16, cycle_seconds=[3.9, 9.9, 15.9])]
    found = not_none(recommend(SPEC, trials, ""))
    assert [row.configuration for row in found.rows] == [SPEC.baseline]


def test_a_baseline_the_budget_broke_off_is_neither_ok_nor_failed() -> None:
    other = f.configuration(logprob_rows=1)
    trials = [
        f.broken_off(0),
        f.finished(1, configuration=other),
        f.finished(2, configuration=FASTER, cycle_seconds=5.0),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.baseline == UNMEASURED_BY_BUDGET
    assert not found.baseline_failed
    assert found.reference == 1
    measured = recommend(SPEC, [*trials, f.finished(3, kind=TrialKind.BASELINE, configuration=SPEC.baseline)], "")
    assert (measured.baseline, measured.reference) == ("ok", 3)


def test_a_failed_baseline_is_told_and_gains_are_over_the_reference() -> None:
    trials = [
        f.failed(0, kind=TrialKind.BASELINE, configuration=SPEC.baseline),
        f.finished(1, configuration=f.configuration(logprob_rows=1), cycle_seconds=[9.9, 10.0, 10.1]),
        f.finished(2, configuration=FASTER, cycle_seconds=[4.9, 5.0, 5.1]),
        *_confirmed({f.configuration(logprob_rows=1): 10.0, FASTER: 5.0}),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.baseline.startswith("OOM in update (host memory)")
    assert found.baseline_failed
    assert found.reference == 1
    assert found.rows[0].configuration == FASTER
    assert not_none(found.rows[0].gain).value == pytest.approx(1.0, abs=0.05)


def test_nothing_feasible_recommends_nothing() -> None:
    assert recommend(SPEC, [f.failed(0, configuration=SPEC.baseline)], "") is None


def test_throughput_at_maximum_length_stands_apart() -> None:
    slow = f.cycle(7, seconds=40.0, lengths=(128,) * 8, cycle_kind=CycleKind.MAXIMUM)
    trial = f.finished(0)
    found = not_none(recommend(SPEC, [trial.with_(cycles=(*trial.cycles, slow))], ""))
    assert found.rows[0].maximum_tokens_per_hour == pytest.approx(3600 * 8 * 128 / 40.0)
    assert found.rows[0].tokens_per_hour == pytest.approx(3600 * sum(f.LENGTHS) / 10.0)


def test_headroom_is_of_the_configurations_highest_peak() -> None:
    trials = [f.finished(0, watchdog_peak=4 * f.GIB), f.finished(1, configuration=FASTER, cycle_seconds=20.0)]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.rows[0].host_peak == 4 * f.GIB
    assert found.rows[0].headroom == pytest.approx(0.5)


def test_stopped_early_is_said() -> None:
    searched = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=[3.9, 4.0, 4.1])]
    found = not_none(recommend(SPEC, searched, "stopped by the user"))
    assert not found.rows[0].confirmed
    assert any("before the leaders could be confirmed" in note for note in unconfirmed(found).notes)


def test_only_the_row_that_was_not_confirmed_is_said_to_be_open() -> None:
    trials = [
        *_searched(),
        f.finished(2, configuration=IN_BF16, cycle_seconds=[4.9, 5.0, 5.1]),
        *_confirmed({SPEC.baseline: 10.0, FASTER: 8.0}),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert [row.confirmed for row in found.rows] == [True, False]
    added = unconfirmed(found).notes[len(found.notes) :]
    assert added == (f'The study ended before "{found.rows[1].title}" could be confirmed next to the baseline.',)


def _disturbed(trial: Trial, cycles: int, outside_cpu: float = 0.2) -> Trial:
    bad = {"noisy": True, "outside_cpu": outside_cpu}
    kept = [replace(c, **bad) if place < cycles else c for place, c in enumerate(trial.cycles)]
    return trial.with_(cycles=tuple(kept))


@pytest.mark.parametrize("seconds", [8.0, 4.0])
def test_a_gain_rests_on_undisturbed_cycles_alone_and_says_so(seconds: float) -> None:
    runs = [_disturbed(t, 2) for t in _confirmed({SPEC.baseline: 10.0, FASTER: seconds})]
    slowed = [t.with_(cycles=tuple(replace(c, seconds=c.seconds * (1 + 4 * c.noisy)) for c in t.cycles)) for t in runs]
    found = not_none(recommend(SPEC, [*_searched(), *slowed], ""))
    assert (found.rows[0].configuration, found.rows[0].confirmed) == (FASTER, True)
    assert not_none(found.rows[0].gain).value == pytest.approx(10.0 / seconds - 1.0, rel=0.05)
    assert any("disturbed 8 of 12 cycles" in note and "left out" in note for note in found.notes)


@pytest.mark.parametrize(("side", "name"), [(SPEC.baseline, "the baseline"), (FASTER, "the candidate")])
def test_where_a_side_lacks_undisturbed_cycles_it_is_not_decided(side: Configuration, name: str) -> None:
    runs = [_disturbed(t, 3 if t.configuration == side else 0) for t in _confirmed({SPEC.baseline: 10.0, FASTER: 4.0})]
    searched = [_disturbed(t, 3 if t.configuration == side else 0) for t in _searched()]
    found = not_none(recommend(SPEC, [*searched, *runs], ""))
    assert found.rows[0].configuration == SPEC.baseline
    assert any(note.startswith(f"A gain is not decided: {name} was disturbed in ") for note in found.notes)


def test_disturbed_trials_outside_the_rounds_prove_nothing_however_far_apart() -> None:
    trials = [
        _disturbed(f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]), 2),
        _disturbed(f.finished(1, configuration=FASTER, cycle_seconds=[0.99, 1.0, 1.01]), 2),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.rows[0].configuration == SPEC.baseline


def test_a_confirmed_lead_is_not_lost_to_one_that_is_not_proven() -> None:
    other = f.configuration(gradient_checkpointing=False)
    trials = [
        *_searched(),
        f.finished(2, configuration=other, cycle_seconds=[2.0, 4.0, 15.0]),
        *_confirmed({SPEC.baseline: 10.0, FASTER: 8.0}),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert (found.rows[0].configuration, found.rows[0].confirmed) == (FASTER, True)
    assert any("gradient_checkpointing" in note and "includes no gain" in note for note in found.notes)


@pytest.mark.parametrize(
    ("others", "said"), [(0, ""), (1, "another configuration is"), (3, "3 other configurations are")]
)
def test_one_reason_is_said_once_however_many_leaders_are_not_proven(others: int, said: str) -> None:
    noisy = [2.0, 9.0, 15.0]
    some = [FASTER, *(f.configuration(gradient_checkpointing=False, logprob_rows=1 << n) for n in range(others))]
    trials = [
        f.finished(0, cycle_seconds=[10.0, 8.0, 12.0]),
        *(
            f.finished(1 + n, kind=TrialKind.CONFIRM, pair=0, configuration=c, cycle_seconds=noisy)
            for n, c in enumerate(some)
        ),
    ]
    found = not_none(recommend(SPEC, trials, ""))
    assert found.rows[0].configuration == SPEC.baseline
    (note,) = [note for note in found.notes if "not recommended" in note]
    assert note.count("includes no gain") == 1
    assert note.endswith(f" For the same reason {said} not recommended." if others else "so it is not recommended.")


def test_a_slow_hour_puts_nothing_unconfirmed_before_what_was_confirmed_in_it() -> None:
    """The search saw 5 s before 6 s; the rounds ran when the machine was half as fast, the baseline too."""
    second = f.configuration(gradient_checkpointing=False)
    trials = [
        f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]),
        f.finished(1, configuration=FASTER, cycle_seconds=[4.9, 5.0, 5.1]),
        f.finished(2, configuration=second, cycle_seconds=[5.9, 6.0, 6.1]),
        *_confirmed({SPEC.baseline: 20.0, FASTER: 10.0}),
    ]
    leader = evidence.leaders(trials, SPEC.baseline, "trl")[0]
    assert leader.configuration == FASTER
    unpaired = not_none(evidence.gain(trials, second, SPEC.baseline))
    assert (unpaired.pairs, round(unpaired.value, 2)) == (0, 0.67)
