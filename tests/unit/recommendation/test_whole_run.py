"""Hours and money of the user's whole run, before and after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import TrialKind
from autotune.errors import UsageError
from autotune.recommendation.recommend import recommend
from autotune.recommendation.whole_run import WholeRun, _saved, check_asked, whole_run, whole_run_json, whole_run_words
from autotune.statistics import evidence
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec(resources=f.resources(gpus=4, device="cuda"))
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
TOKENS = sum(f.LENGTHS)


def _trials(baseline_s: float = 10.0, faster_s: float = 8.0, updates: int = 1) -> list[object]:
    found = [
        f.finished(0, cycle_seconds=[baseline_s] * 3),
        f.finished(1, configuration=FASTER, cycle_seconds=[8.0] * 3),
    ]
    for pair in range(2):
        for place, (one, seconds) in enumerate(((SPEC.baseline, baseline_s), (FASTER, faster_s))):
            around = [seconds * 0.99, seconds, seconds * 1.01]
            kind = TrialKind.CONFIRM
            found.append(
                f.finished(2 + 2 * pair + place, configuration=one, kind=kind, pair=pair, cycle_seconds=around)
            )
    return [t.with_(cycles=tuple(replace(c, updates=updates) for c in t.cycles)) for t in found]


def _run(trials: list[object], price: float | None = None, spec: object = SPEC) -> WholeRun:
    made = whole_run(spec, trials, recommend(spec, trials, "x"), 360, price)  # type: ignore[arg-type]
    assert made is not None
    return made


def test_the_hours_are_the_tokens_of_all_updates_over_tokens_per_hour() -> None:
    run = _run(_trials())
    assert run.tokens_per_update == TOKENS
    assert run.before.value == pytest.approx(1.0, rel=1e-3)  # 360 updates of 10 s
    assert run.after.value == pytest.approx(0.8, rel=1e-3)
    assert run.saved.value == pytest.approx(0.2, rel=0.02)
    for estimate in (run.before, run.after, run.saved):
        assert estimate.low < estimate.value < estimate.high


def test_a_cycle_of_several_updates_counts_once_for_each() -> None:
    assert _run(_trials(updates=2)).tokens_per_update == TOKENS / 2


def test_money_is_for_all_gpus_held_and_follows_the_interval() -> None:
    run = _run(_trials(), price=2.5)
    before = not_none(run.cost["before"])
    assert before.value == pytest.approx(2.5 * 4 * run.before.value)
    assert before.low == pytest.approx(2.5 * 4 * run.before.low)
    words = whole_run_words(run)
    assert len(words) == 2
    assert " instead of " in words[0]
    assert "GPU-hours" in words[0]
    assert "cost" in words[0]


def test_without_a_price_nothing_is_said_of_money() -> None:
    run = _run(_trials())
    assert "cost" not in " ".join(whole_run_words(run))
    document = not_none(whole_run_json(run))
    assert document["cost"] is None
    assert document["hours"]["saved"]["low"] <= document["hours"]["saved"]["value"]


def test_a_failed_baseline_has_no_hours_and_nothing_is_said_to_be_saved() -> None:
    trials = [f.failed(0, f.oom()), f.finished(1, configuration=FASTER, cycle_seconds=[8.0] * 3)]
    run = _run(trials)  # type: ignore[arg-type]
    assert run.before is None
    assert run.saved is None
    assert "instead of" not in whole_run_words(run)[0]


def test_an_answer_that_is_the_baseline_takes_as_long_and_saves_nothing() -> None:
    run = _run([f.finished(0, cycle_seconds=[10.0] * 3)])  # type: ignore[list-item]
    assert run.after == run.before
    assert run.saved is None


def test_an_interval_that_holds_no_gain_is_said_to() -> None:
    run = _run(_trials())
    assert run.saved is not None
    doubtful = replace(run, saved=replace(run.saved, low=-0.1))
    assert "includes no hours saved" in whole_run_words(doubtful)[-1]
    assert "includes no hours saved" not in whole_run_words(run)[-1]


def test_nothing_feasible_has_no_whole_run() -> None:
    trials = [f.failed(0, f.oom())]
    assert whole_run(SPEC, trials, recommend(SPEC, trials, "x"), 10) is None
    assert whole_run_json(None) is None


def test_a_price_is_refused_where_it_says_nothing() -> None:
    with pytest.raises(UsageError, match="runs on a CPU"):
        _run(_trials(), price=2.0, spec=f.study_spec())
    with pytest.raises(UsageError, match="--price needs --updates"):
        check_asked(None, 2.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="above 0"):
            check_asked(10, wrong)
    check_asked(10, 2.0)
    for updates, price, option in ((10**400, None, "--updates"), (10, 1e308, "--price")):
        with pytest.raises(UsageError, match=f"{option}.*at most 1,000,000,000"):
            check_asked(updates, price)


def test_on_several_nodes_what_is_saved_has_the_level_of_the_gain() -> None:
    trials = [t.with_(node="b" if t.number == 0 else "a") for t in _trials()]  # type: ignore[attr-defined]
    gain = not_none(evidence.gain(trials, FASTER, SPEC.baseline))
    saved = not_none(_saved(1.0, gain))
    assert saved.level == 0.999
    assert "99.9 % interval" in saved.words(str)
