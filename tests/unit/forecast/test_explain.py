"""Why the answer of a whole study is what it is."""

from __future__ import annotations

import pytest

from autotune.domain import Recommendation, StudySpec, Trial
from autotune.forecast.explain import explain
from autotune.insights.why import RulingCause, Why, why_json
from autotune.proposals import dominance
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.recommend import recommend
from autotune.report import report
from search_spaces.space import SearchSpace
from tests.support import factories
from tests.support.not_none import not_none

SPACE = {
    "knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False], "logprob_rows": [1, 2, 4, 8]}
}


@pytest.fixture
def spec() -> StudySpec:
    space = SearchSpace.from_json(SPACE)
    resources = factories.resources()
    baseline = space.complete(factories.configuration(), resources)
    return factories.study_spec(space=SPACE, baseline=baseline, resources=resources)


@pytest.fixture
def trials(spec: StudySpec) -> list[Trial]:
    space = SearchSpace.from_json(SPACE)
    every = space.candidates(spec.baseline, spec.resources, same_learning=True)
    like = [c for c in every if c["logprob_rows"] == 2 and c["gradient_checkpointing"] is True]
    four, eight = (next(c for c in like if c["micro_batch_size"] == rows) for rows in (4, 8))
    return [
        factories.finished(0, configuration=spec.baseline, cycle_seconds=10.0),
        factories.finished(1, configuration=four, cycle_seconds=5.0),
        factories.failed(2, configuration=eight),
    ]


def answered(spec: StudySpec, trials: list[Trial]) -> tuple[Recommendation, Why]:
    found = not_none(recommend(spec, trials, "budget"))
    why = explain(StudyReading(factories.study(spec=spec), trials, known_answer=(AnswerSource.RECOMMENDATION, found)))
    assert why is not None
    return found, why


def test_counts_are_those_of_the_space_and_of_the_failures(spec: StudySpec, trials: list[Trial]) -> None:
    _, why = answered(spec, trials)
    space = SearchSpace.from_json(SPACE)
    every = space.candidates(spec.baseline, spec.resources, same_learning=False)
    assert (why.legal, why.tried, why.exact) == (len(every), 3, True)
    (region,) = dominance.regions(trials, one_memory=True)
    (memory,) = [r for r in why.ruled_out if r.by is RulingCause.MEMORY]
    assert memory.count == sum(dominance.covers(region, c) for c in every) > 0
    assert memory.trials == (2,)
    assert memory.exact
    explanation = space.explain(spec.baseline, spec.resources)
    assert {r.name: r.count for r in why.ruled_out if r.by is RulingCause.LEGALITY} == dict(explanation.removed)


def test_a_memory_failure_one_step_further_is_a_limit(spec: StudySpec, trials: list[Trial]) -> None:
    found, why = answered(spec, trials)
    assert found.rows[0].configuration == trials[1].configuration
    assert why.rows[0].limits[0] == found.rows[0].limit
    assert why.rows[0].limits[1] == "one step further, micro_batch_size 4 -> 8: OOM in update (host), #2"


def test_the_documents_say_the_same(spec: StudySpec, trials: list[Trial]) -> None:
    _, why = answered(spec, trials)
    text = report(StudyReading(factories.study(spec=spec), tuple(trials), (0.0, 0.0)), reasons=why)
    document = not_none(why_json(why))
    shares = document["rows"][0]["shares"]
    assert [[c["knob"] for c in knob["changes"]] for knob in shares["knobs"]] == [["micro_batch_size"]]
    assert all(f"- {line}" in text.replace("`", "") for line in (shares["knobs"][0]["words"], shares["words"]))
    assert document["rows"][0]["failed_neighbours"][0]["cause"] == "OOM in update (host)"
    assert why_json(None) is None


def test_without_an_answer_there_is_no_why(spec: StudySpec, trials: list[Trial]) -> None:
    assert explain(StudyReading(factories.study(spec=spec), trials[2:])) is None
