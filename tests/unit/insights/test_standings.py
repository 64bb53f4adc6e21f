"""How stopped trials stand beside the others."""

from __future__ import annotations

from autotune.insights.feasibility import feasibility
from autotune.insights.standings import best_first, count, outcome_word, standings
from autotune.recommendation.recommend import recommend
from autotune.statistics import evidence
from tests.support import factories as f
from tests.support.not_none import not_none


def test_a_stopped_trial_stands_behind_every_measured_one_and_before_what_failed() -> None:
    trials = [f.failed(1), f.stopped(2, at_most=9e9), f.finished(0), f.stopped(3, at_most=9e8), f.trial(4)]
    assert [t.number for t in best_first(trials)] == [0, 2, 3, 4, 1]
    assert [outcome_word(t) for t in best_first(trials)] == ["ok", "stopped", "stopped", "waiting", "OOM"]
    assert count(trials).sentence() == "4 tried: 1 ok, 2 stopped early, 1 OOM"


def test_a_stopped_trial_is_in_no_ranking_and_no_answer_however_fast_its_cycles_were() -> None:
    spec = f.study_spec()
    fast = f.stopped(1, at_most=9e9).with_(cycles=f.finished(cycle_seconds=0.1).cycles)
    trials = (f.finished(0), fast)
    assert list(evidence.feasible(trials)) == [f.configuration()]
    assert [s.numbers for s in standings(trials, spec.baseline, spec.framework)] == [(0,)]
    found = not_none(recommend(spec, trials, "the end"))
    assert [row.configuration for row in found.rows] == [spec.baseline]
    assert recommend(spec, trials[1:], "the end") is None


def test_a_stopped_trial_is_known_to_fit() -> None:
    trials = [
        f.finished(0, configuration=f.configuration(micro_batch_size=2)),
        f.stopped(1, configuration=f.configuration(micro_batch_size=4)),
        f.failed(2, configuration=f.configuration(micro_batch_size=8)),
    ]
    found = {r.value: (r.tried, r.feasible, dict(r.failures)) for r in feasibility(trials)}
    assert found[4] == (1, 1, {})
    assert found[8][1] == 0
