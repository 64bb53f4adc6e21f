"""What each knob gave, against configurations that were really measured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import FailureReason, Phase, Trial, TrialKind
from autotune.domain.differences import chosen_differences
from autotune.insights.ruled_out import RulingCause, by_trials
from autotune.insights.why import MOST_CONTRASTS, MOST_KNOBS, Reason, reasons
from autotune.insights.why_words import knob_lines, reason_json, reason_lines, ruled_words
from autotune.statistics.retries import SOURCE
from tests.support import factories

BASE = factories.configuration(gradient_accumulation_steps=4, steps_per_generation=4)
FOUR = BASE.with_(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2)
EIGHT = BASE.with_(micro_batch_size=8, gradient_accumulation_steps=1, steps_per_generation=1)


def of(found: tuple[Reason, ...], knob: str) -> Reason:
    return next(r for r in found if r.knob == knob)


def test_what_follows_from_others_is_no_difference() -> None:
    assert chosen_differences(BASE, FOUR) == {"micro_batch_size": (2, 4)}
    half = BASE.with_(steps_per_generation=2)
    assert chosen_differences(BASE, half) == {"steps_per_generation": (4, 2)}, "half an update is another share"
    assert chosen_differences(half, FOUR.with_(steps_per_generation=1)) == {"micro_batch_size": (2, 4)}


def test_the_step_from_the_reference_goes_first_and_names_its_trials() -> None:
    trials = [
        factories.finished(0, configuration=BASE, cycle_seconds=10.0),
        factories.finished(1, configuration=FOUR, cycle_seconds=8.0),
        factories.finished(2, configuration=EIGHT, cycle_seconds=5.0),
    ]
    found = of(reasons(trials, EIGHT, BASE), "micro_batch_size")
    assert [(c.changes[0].before, c.before, c.after) for c in found.contrasts] == [(2, (0,), (2,)), (4, (1,), (2,))]
    assert found.contrasts[0].gain.value == pytest.approx(1.0)
    assert found.contrasts[1].gain.value == pytest.approx(0.6)
    assert found.together is None
    assert "micro_batch_size 2 -> 8: +100.0 %" in reason_lines(found)[0]
    assert "#0 -> #2" in reason_lines(found)[0]


@settings(max_examples=30)
@given(
    before=st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3),
    after=st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3),
)
def test_the_phases_add_up_to_the_gain(before: list[float], after: list[float]) -> None:
    def trial(number: int, seconds: list[float], **changes: object) -> Trial:
        names = (Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value)
        cycle = factories.cycle(seconds=sum(seconds), phases=dict(zip(names, seconds, strict=True)))
        return factories.finished(number, cycles=3).with_(cycles=(cycle, cycle, cycle), **changes)

    trials = [trial(0, before, configuration=BASE), trial(1, after, configuration=EIGHT)]
    found = of(reasons(trials, EIGHT, BASE), "micro_batch_size").contrasts[0]
    assert sum(found.phases.values()) == pytest.approx(1.0 / (1.0 + found.gain.value) - 1.0, abs=1e-9)
    sizes = [abs(v) for v in found.phases.values()]
    assert sizes == sorted(sizes, reverse=True)


def test_knobs_that_moved_together_are_not_told_apart() -> None:
    both = EIGHT.with_(logprob_rows=8)
    trials = [factories.finished(0, configuration=BASE), factories.finished(1, configuration=both, cycle_seconds=5.0)]
    found = reasons(trials, both, BASE)
    assert {r.knob for r in found} == {"micro_batch_size", "logprob_rows"}
    for reason in found:
        assert reason.contrasts == ()
        assert reason.together is not None
        assert {c.knob for c in reason.together.changes} == {"micro_batch_size", "logprob_rows"}
        assert "not told apart" in reason_lines(reason)[0]


def test_too_many_knobs_apart_say_nothing_of_any() -> None:
    far = EIGHT.with_(logprob_rows=8, precision="bf16", gradient_checkpointing=False)
    assert len(chosen_differences(BASE, far)) > MOST_KNOBS
    trials = [factories.finished(0, configuration=BASE), factories.finished(1, configuration=far, cycle_seconds=5.0)]
    found = reasons(trials, far, BASE)
    assert len(found) == len(chosen_differences(BASE, far))
    for reason in found:
        assert (reason.contrasts, reason.together, reason.elsewhere) == ((), None, ())
        assert "was not measured apart" in reason_lines(reason)[0]


def test_the_same_step_beside_other_settings_counts_too() -> None:
    far = EIGHT.with_(logprob_rows=8, precision="bf16", gradient_checkpointing=False)
    trials = [
        factories.finished(0, configuration=BASE, cycle_seconds=10.0),
        factories.finished(1, configuration=EIGHT, cycle_seconds=8.0),
        factories.finished(2, configuration=far, cycle_seconds=4.0),
    ]
    found = of(reasons(trials, far, BASE), "micro_batch_size")
    assert found.contrasts == ()
    assert [(c.before, c.after) for c in found.elsewhere] == [((0,), (1,))]
    assert found.elsewhere[0].gain.value == pytest.approx(0.25)
    precision = of(reasons(trials, far, BASE), "precision")
    assert precision.elsewhere == (), "nothing else was measured with bf16"
    assert precision.together is not None, "trial 1 has the reference's precision and differs in two knobs more"


def test_neighbours_that_failed_or_were_stopped_are_named_but_not_as_figures() -> None:
    crash = factories.failure(FailureReason.INFRA)
    trials = [
        factories.finished(0, configuration=BASE, cycle_seconds=10.0),
        factories.finished(1, configuration=FOUR, cycle_seconds=5.0),
        factories.failed(2, configuration=EIGHT),
        factories.stopped(3, configuration=FOUR.with_(logprob_rows=4)),
        factories.failed(4, crash, configuration=FOUR.with_(logprob_rows=8)),
        factories.failed(5, configuration=FOUR.with_(precision="bf16")),
        factories.finished(6, configuration=FOUR.with_(precision="bf16"), kind=TrialKind.VERIFY, source=SOURCE),
    ]
    found = reasons(trials, FOUR, BASE)
    bigger = of(found, "micro_batch_size")
    assert [(f.change.after, f.trial, f.cause) for f in bigger.failed_neighbours] == [(8, 2, "OOM in update (host)")]
    (stopped,) = of(found, "logprob_rows").failed_neighbours
    own = trials[1].tokens_per_hour
    assert own is not None
    assert stopped.at_least == pytest.approx(own / 171_234.0 - 1.0)
    assert all(r.failed_neighbours == () for r in found if r.knob == "precision"), "a retry disproved that failure"
    assert not any(r.changed for r in found if r.knob == "logprob_rows")
    assert [r.changed for r in found] == sorted((r.changed for r in found), reverse=True)
    assert all(reason_json(r)["words"] for r in found)


def test_an_answer_that_was_not_measured_has_no_reasons() -> None:
    assert reasons([factories.finished(0, configuration=BASE)], EIGHT, BASE) == ()


def test_every_trial_is_ruled_out_once_at_most_and_the_answer_never() -> None:
    quality = factories.failure(FailureReason.QUALITY)
    trials = [
        factories.finished(0, configuration=BASE),
        factories.finished(1, configuration=FOUR, cycle_seconds=5.0),
        factories.finished(2, configuration=EIGHT, cycle_seconds=20.0),
        factories.stopped(3),
        factories.failed(4),
        factories.failed(5),
        factories.failed(6, quality),
        factories.failed(7, factories.failure(FailureReason.CANCELLED)),
        factories.trial(8),
    ]
    found = by_trials(trials, [0, 1])
    numbers = [n for r in found for n in r.trials]
    assert sorted(numbers) == [2, 3, 4, 5, 6]
    assert [r.by for r in found] == [RulingCause.GUARD, RulingCause.FAILURE, RulingCause.STOPPED, RulingCause.SLOWER]
    assert all(r.count == len(r.trials) for r in found)
    assert "2 trials (#4, #5)" in ruled_words(found[1])


def test_a_step_that_only_others_made_together_is_still_told_and_each_line_once() -> None:
    both = EIGHT.with_(logprob_rows=8)
    far = both.with_(precision="bf16", gradient_checkpointing=False)
    trials = [
        factories.finished(0, configuration=BASE, cycle_seconds=10.0),
        factories.finished(1, configuration=both, cycle_seconds=8.0),
        factories.finished(2, configuration=far, cycle_seconds=4.0),
    ]
    found = reasons(trials, far, BASE)
    for name in ("micro_batch_size", "logprob_rows"):
        together = of(found, name).together
        assert together is not None
        assert (together.before, together.after) == ((0,), (1,))
    for name in ("precision", "gradient_checkpointing"):
        together = of(found, name).together
        assert together is not None
        assert (together.before, together.after) == ((1,), (2,)), "with the answer in it"
    lines = knob_lines(found)
    assert len(lines) == len(set(lines)) == 2


def test_knobs_of_which_nothing_is_known_share_a_line() -> None:
    far = EIGHT.with_(logprob_rows=8, precision="bf16", gradient_checkpointing=False)
    trials = [factories.finished(0, configuration=BASE), factories.finished(1, configuration=far, cycle_seconds=5.0)]
    (line,) = knob_lines(reasons(trials, far, BASE))
    assert line.startswith("not measured apart from other knobs: ")
    assert all(name in line for name in chosen_differences(BASE, far))


def test_of_thousands_of_neighbours_the_first_are_told() -> None:
    """Every size of a chunk is a neighbour of every other; an answer must not grow with the study."""
    like = [factories.finished(n, configuration=BASE.with_(logprob_token_chunk=64 + n)) for n in range(40)]
    ended = [factories.failed(n, configuration=BASE.with_(logprob_token_chunk=64 + n)) for n in range(40, 80)]
    found = of(reasons((*like, *ended), BASE.with_(logprob_token_chunk=64 + 7), BASE), "logprob_token_chunk")
    assert [c.before for c in found.contrasts] == [(n,) for n in range(MOST_CONTRASTS + 1) if n != 7]
    assert [f.trial for f in found.failed_neighbours] == list(range(40, 40 + MOST_CONTRASTS))
