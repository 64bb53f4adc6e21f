"""The synthetic studies on two nodes: what they show is only worth something if they can fail."""

from __future__ import annotations

from autotune.domain import TrialKind
from benchmarks.decisions.studies import h100
from benchmarks.nodes import NODES, PLACES, SEARCHED, Case, MadeUp, answers, row

STUDIES = 4


def test_a_large_gain_is_found_on_two_nodes_and_none_is_made_up() -> None:
    found = answers(Case(slower=0.1, gain=1.0), STUDIES)
    assert [one.found for one in found] == [True] * STUDIES
    assert not any(one.false for one in found)


def test_a_node_that_is_far_slower_makes_no_gain_with_the_rule() -> None:
    assert not any(one.false for one in answers(Case(slower=1.0, gain=0.0), STUDIES))


def test_a_study_is_what_the_text_says() -> None:
    study = MadeUp(h100().spec, Case(slower=0.1, gain=0.0), seed=0)
    study.run()
    trials = study.trials
    kinds = [t.kind for t in trials]
    assert kinds.count(TrialKind.VERIFY) == PLACES * len(NODES)
    assert kinds.count(TrialKind.SEARCH) == SEARCHED
    rounds: dict[int, set[str]] = {}
    for trial in trials:
        if trial.pair is not None:
            rounds.setdefault(trial.pair, set()).add(trial.node)
    assert rounds
    assert all(len(nodes) == 1 for nodes in rounds.values())
    assert all(not t.node for t in _without().trials)


def _without() -> MadeUp:
    study = MadeUp(h100().spec, Case(slower=0.1, gain=0.0, rule=False), seed=0)
    study.run()
    return study


def test_the_row_says_what_was_counted() -> None:
    case = Case(slower=0.1, gain=1.0)
    said = row(case, answers(case, 1))
    assert "two, one 10% slower | yes | one is 100% faster | 1 | 0 | 1 |" in said
