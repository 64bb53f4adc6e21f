"""The grey-box sampler with the project's own models, over a real search space."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Pool
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import MemoryModel
from autotune.proposals.memory.model import scaled
from autotune.proposals.proposer import make_proposer
from autotune.proposals.samplers.grey import models_for
from autotune.proposals.times import PhaseTimes, features
from search_spaces.legality import check
from search_spaces.space import SearchSpace
from tests.contracts.proposer_suite import confirmations
from tests.support import factories
from tests.support.not_none import not_none

SPACE = SearchSpace.load("cpu")
RESOURCES = factories.resources(rows_per_update=64, num_generations=8)
BASELINE = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 8, "num_generations": 8})
TASK = Task(RESOURCES, 64, factories.MAX_PROMPT, factories.MAX_COMPLETION, memory_limit=12 * factories.GIB)
CANDIDATES = SPACE.candidates(SPACE.complete(BASELINE, RESOURCES), RESOURCES, same_learning=True)
HISTORY = [factories.finished(i, configuration=c, source="x") for i, c in enumerate(CANDIDATES[:6])]


def test_candidates_are_read_once_and_that_changes_no_forecast() -> None:
    models = models_for(TASK)
    assert isinstance(models.times, PhaseTimes)
    assert isinstance(models.peaks, MemoryModel)
    candidates, places = tuple(CANDIDATES), np.array([0, 5, 17, 17, len(CANDIDATES) - 1])
    asked = [candidates[i] for i in places]
    table, rows = features(TASK, candidates), scaled(TASK, candidates)
    for trials in ([], HISTORY, HISTORY[:3]):
        own, peaks = models.times.fitted(TASK, trials), models.peaks.fitted(TASK, trials)
        there, plain = own.forecast(candidates), own.forecast(asked)
        for name in ("log_seconds", "spread"):
            assert np.allclose(getattr(there, name)[places], getattr(plain, name)), name
        assert np.allclose(peaks.forecast(candidates).fits[places], peaks.forecast(asked).fits)
        assert np.array_equal(peaks.forecast(list(candidates)).fits, peaks.forecast(candidates).fits)
        assert features(TASK, candidates) is table, "read twice"
        assert scaled(TASK, candidates) is rows, "read twice"


def test_a_memory_forecast_is_the_highest_moment_of_each_configuration() -> None:
    peaks = MemoryModel.before(TASK).fitted(TASK, HISTORY)
    (factors,), (matrix,) = peaks.factors, scaled(TASK, tuple(CANDIDATES))
    found, _ = peaks.peaks(CANDIDATES, Pool.HOST)
    for place, own in enumerate(matrix):
        assert found[place] == pytest.approx(max(float(row @ np.exp(factors.logs)) for row in own), rel=1e-12)


def test_what_was_read_of_trials_changes_no_fit() -> None:
    """Neither which were read before, nor by which fit, nor of which task."""
    models, elsewhere = models_for(TASK), replace(TASK, max_completion_length=2 * TASK.max_completion_length)
    for model in (models.times, models.peaks):
        assert model is not None
        for trials, task in ((HISTORY[:2], TASK), (HISTORY, elsewhere), (HISTORY[3:], TASK), (HISTORY, TASK)):
            again = models_for(task)
            fresh = not_none(again.times if model is models.times else again.peaks)
            here, there = model.fitted(task, trials), fresh.fitted(task, trials)
            for name, column in vars(there.forecast(CANDIDATES[:40])).items():
                if name != "phases":
                    assert np.allclose(getattr(here.forecast(CANDIDATES[:40]), name), column, rtol=1e-9), name


def test_a_study_is_searched_by_the_models() -> None:
    proposer = make_proposer(SPACE, BASELINE, RESOURCES, "grey", seed=3, task=TASK)
    made = [factories.finished(0, configuration=BASELINE)]
    for number in range(1, 9):
        proposal = not_none(proposer.propose([*made, *confirmations(made)], number))
        assert check(proposal[0], RESOURCES, BASELINE) == ()
        made.append(factories.finished(number, configuration=proposal[0], source=proposal[1]))
    assert len({t.configuration for t in made}) == 9
    sources = [t.source.partition("/")[0] for t in made[1:]]
    assert set(sources) <= {"grey", "step"}
    assert "grey" in sources
    assert proposer.propose(made, 9) == make_proposer(SPACE, BASELINE, RESOURCES, "grey", 3, TASK).propose(made, 9)


def test_a_task_of_which_little_is_known_is_searched_too() -> None:
    bare = Task(factories.resources(), factories.ROWS, 16, 32)
    spec = factories.study_spec()
    proposer = make_proposer(SearchSpace.from_json(spec.space), spec.baseline, spec.resources, "grey", 0, task=bare)
    assert proposer.propose([], 0) is not None
