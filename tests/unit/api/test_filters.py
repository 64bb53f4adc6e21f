"""The part of an address after the question mark: what it lists, and that it cannot be made to do anything else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.dashboard.budget_view import budget_view
from api.dashboard.filters import PAGE, TrialFilter, menus, trials_page
from api.dashboard.render import render
from api.dashboard.study_view import study_view
from api.dashboard.trials_view import SHOWN_KNOBS, trial_table
from api.filters import SORTS
from autotune.domain import Budget, FailureReason, StudyStatus, Trial
from autotune.recommendation.reading import AnswerSource, StudyReading
from tests.support import factories as f


def snapshot(trials: tuple[Trial, ...], **changes: Any) -> StudyReading:
    base: dict[str, Any] = {
        "study": f.study(),
        "trials": trials,
        "spent": (60.0, 0.0),
        "limits": Budget(),
        "known_answer": (AnswerSource.BEST_SO_FAR, None),
        "fingerprint": None,
    }
    return StudyReading(**(base | changes))


TRIALS = (
    f.finished(0),
    f.finished(1, cycle_seconds=5.0, configuration=f.configuration(micro_batch_size=4)),
    f.failed(2, configuration=f.configuration(micro_batch_size=8)),
    f.failed(3, f.failure(FailureReason.CRASH), configuration=f.configuration(micro_batch_size=4, precision="bf16")),
)


def numbers(**query: str) -> list[int]:
    pairs = [(name.replace("__", "."), value) for name, value in query.items()]
    return [t.number for t in trials_page(snapshot(TRIALS), TrialFilter.of(pairs)).shown]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [1, 0, 2, 3]),
        ({"outcome": "ok"}, [1, 0]),
        ({"outcome": "OOM"}, [2]),
        ({"kind": "baseline"}, [0]),
        ({"knob__micro_batch_size": "4"}, [1, 3]),
        ({"knob__micro_batch_size": "4", "outcome": "CRASH"}, [3]),
        ({"knob__gradient_checkpointing": "on"}, [1, 0, 2, 3]),
        ({"knob__nowhere": "1"}, []),
        ({"knob__nowhere": "-"}, [1, 0, 2, 3]),
        ({"knob__micro_batch_size": "3..8"}, [1, 2, 3]),
        ({"knob__micro_batch_size": "..4"}, [1, 0, 3]),
        ({"knob__micro_batch_size": "8.."}, [2]),
        ({"knob__micro_batch_size": "8..2"}, []),
        ({"knob__micro_batch_size": "nan..8"}, []),
        ({"knob__micro_batch_size": ".."}, []),
        ({"knob__micro_batch_size": "a..b"}, []),
        ({"knob__precision": "..9"}, []),
        ({"knob__gradient_checkpointing": "0..1"}, []),
        ({"outcome": "<script>"}, []),
        ({"sort": "newest"}, [3, 2, 1, 0]),
        ({"sort": "number"}, [0, 1, 2, 3]),
        ({"sort": "__class__"}, [1, 0, 2, 3]),
        ({"page": "7"}, [1, 0, 2, 3]),
        ({"page": "-1"}, [1, 0, 2, 3]),
        ({"page": "९"}, [1, 0, 2, 3]),
        ({"page": "9" * 5000}, [1, 0, 2, 3]),
    ],
)
def test_what_is_asked_for_is_listed(query: dict[str, str], expected: list[int]) -> None:
    assert numbers(**query) == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["outcome", "kind", "sort", "page", "knob.x", "knob.<y", "z"]), st.text())))
def test_any_address_is_understood_and_says_the_same_again(query: list[tuple[str, str]]) -> None:
    wanted = TrialFilter.of(query)
    assert TrialFilter.of(wanted.query()) == wanted
    assert wanted.sort in SORTS
    assert wanted.page >= 1
    assert all(len(value) <= 200 for _, value in wanted.query())


def test_pages_part_the_trials_without_loss() -> None:
    trials = tuple(f.finished(n, cycle_seconds=10.0 + n / 100) for n in range(2 * PAGE + 1))
    found = snapshot(trials)
    shown = [t.number for page in (1, 2, 3) for t in trials_page(found, TrialFilter(page=page)).shown]
    assert shown == list(range(2 * PAGE + 1))
    assert trials_page(found, TrialFilter(page=99)).page == trials_page(found, TrialFilter()).pages == 3


def test_menus_offer_what_there_is_and_keep_what_was_chosen() -> None:
    made = {menu.label: menu for menu in menus(snapshot(TRIALS), TrialFilter.of([("knob.micro_batch_size", "64")]))}
    assert [value for value, _, _ in made["micro_batch_size"].choices] == ["", "2", "4", "8", "64"]
    assert [value for value, _, chosen in made["micro_batch_size"].choices if chosen] == ["64"]
    assert [value for value, _, _ in made["outcome"].choices] == ["", "CRASH", "OOM", "ok"]
    assert "attn_implementation" not in made, "it is the same everywhere"
    for menu in made.values():
        assert sum(chosen for _, _, chosen in menu.choices) == 1


def test_a_knob_of_too_many_values_is_written_and_keeps_what_was_written() -> None:
    trials = tuple(f.finished(n, configuration=f.configuration(logprob_token_chunk=n + 1)) for n in range(60))
    found, wanted = snapshot(trials), TrialFilter.of([("knob.logprob_token_chunk", "10..12")])
    (menu,) = [menu for menu in menus(found, wanted) if menu.label == "logprob_token_chunk"]
    assert (menu.free, menu.name, menu.choices[0][0]) == (True, "knob.logprob_token_chunk", "10..12")
    assert [t.number for t in trials_page(found, wanted).shown] == [9, 10, 11]
    page = render("study.html", study=study_view(found, {}, wanted)).decode()
    assert 'name="knob.logprob_token_chunk" value="10..12"' in page


def test_knobs_without_a_column_are_named() -> None:
    few, many = (
        tuple(f.finished(n, configuration=f.configuration(**{f"k{k:02d}": n for k in range(count)})) for n in range(2))
        for count in (SHOWN_KNOBS, SHOWN_KNOBS + 3)
    )
    assert trial_table(snapshot(few)).columnless == ()
    found = snapshot(many)
    assert len(trial_table(found).heads) == SHOWN_KNOBS
    assert len(trial_table(found).columnless) == 3
    page = render("study.html", study=study_view(found, {})).decode()
    assert "3 more knobs differ and have no column here" in page
    assert all(f"<code>{name}</code>" in page for name in found.differing[SHOWN_KNOBS:])


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Budget(wall_s=600.0), "2 min 30 s of 10 min and 0.50 GPU-hours"),
        (Budget(wall_s=600.0, gpu_hours=2.0), "2 min 30 s of 10 min"),
    ],
)
def test_gpu_hours_are_told_with_a_limit_and_without(limits: Budget, said: str) -> None:
    view = budget_view(snapshot(TRIALS, limits=limits, spent=(150.0, 1800.0)))
    assert view.used == said
    assert ("0.50" in [limit.used for limit in view.limits]) is (limits.gpu_hours is not None)


@pytest.mark.parametrize(
    ("limits", "spent", "first", "said"),
    [
        (Budget(wall_s=600.0), (150.0, 0.0), "time", "the time limit will end it, in about 7 min 30 s"),
        (Budget(wall_s=600.0, max_trials=5), (150.0, 0.0), "trials", "the number of trials will end it"),
        (Budget(wall_s=600.0, gpu_hours=1.0), (150.0, 1800.0), "GPU-hours", "the GPU-hours will end it, in about 2"),
        (Budget(max_trials=4), (1.0, 0.0), "trials", "the number of trials is used up"),
        (Budget(gpu_hours=0.5), (9.0, 9000.0), "GPU-hours", "the GPU-hours are used up"),
        (Budget(wall_s=600.0), (float("inf"), 0.0), "time", ""),
    ],
)
def test_the_limit_that_is_used_up_the_furthest_ends_it(
    limits: Budget, spent: tuple[float, float], first: str, said: str
) -> None:
    view = budget_view(snapshot(TRIALS, limits=limits, spent=spent, alive=True))
    assert [limit.name for limit in view.limits if limit.first] == [first]
    assert view.ends.startswith(said)
    assert all(0.0 <= float(limit.percent) <= 100.0 for limit in view.limits)


def test_nothing_ends_what_has_no_limit_or_has_ended() -> None:
    assert budget_view(snapshot(TRIALS)).ends == ""
    done = f.study(status=StudyStatus.DONE)
    assert budget_view(snapshot(TRIALS, study=done, limits=Budget(max_trials=9))).ends == ""
