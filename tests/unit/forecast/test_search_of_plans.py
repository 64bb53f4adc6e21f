"""The search over forecasts, with forecasts whose best is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Pool, Trial
from autotune.forecast.answer import Machine
from autotune.forecast.architecture import architecture
from autotune.forecast.forecasting import Forecasts
from autotune.forecast.gpus import GPUS, gpu_named
from autotune.forecast.question import PlanRequest, Question
from autotune.forecast.search import ALIKE, SHAPE, SearchScope, _around, search
from autotune.proposals.forecasts import SURE, PeakForecast, Task, TimeForecast
from autotune.proposals.memory import Breakdown, Moment
from search_spaces import legality
from search_spaces.batch import BATCH_KNOBS
from search_spaces.space import SearchSpace
from tests.support.not_none import not_none
from tests.support.published_models import PUBLISHED

GIB = 1 << 30


class Times:
    """Faster with larger micro-batches, a larger cache and without checkpointing; nothing else matters."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Times:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        seconds = np.array([self.seconds(c) for c in configurations])
        return TimeForecast(np.log(seconds), np.full(len(seconds), 0.3), {"update": seconds})

    @staticmethod
    def seconds(c: Configuration) -> float:
        engine = 1.0 if c["rollout_engine"] == "vllm" else 3.0
        cache = float(c.get("gpu_memory_utilization", 0.3)) if engine == 1.0 else 0.1
        return 10 * engine + 8 / float(c["micro_batch_size"]) + 4 * bool(c["gradient_checkpointing"]) + 2 / cache


class Peaks:
    """Micro-batch and cache share the memory."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Peaks:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        peak = np.array([self.peak(c) for c in configurations])
        return PeakForecast(peak, np.full(len(peak), 0.1), (peak <= self.limit).astype(np.float64))

    @staticmethod
    def breakdown(_: Configuration) -> tuple[Breakdown, ...]:
        return (Breakdown(Pool.DEVICE, Moment.UPDATE, 0.0, {}),) * 2

    @staticmethod
    def peak(c: Configuration) -> float:
        rows = float(c["micro_batch_size"]) * (0.2 if c["gradient_checkpointing"] else 1.0)
        cache = 80 * float(c.get("gpu_memory_utilization", 0.3)) if c["rollout_engine"] == "vllm" else 10
        return (10 + rows + cache) * GIB


def forecasts(limit: float) -> Forecasts:
    return Forecasts(
        Times(),
        Peaks(limit),
        lambda c: 8192.0,
        80 * GIB,
    )


def question(space: SearchSpace, gpus: int = 8) -> Question:
    machine = Machine("h100", GPUS["h100"].memory, gpus)
    wanted = PlanRequest("Qwen2.5-7B", architecture(PUBLISHED["Qwen2.5-7B"][0]))
    return Question(wanted.load(machine), machine, GPUS["h100"], "space", space)


def asked(space: SearchSpace, gpus: int = 8) -> SearchScope:
    about = question(space, gpus)
    return SearchScope(space, about.baseline(), about.resources, same_learning=True)


def test_in_a_small_space_it_finds_the_very_best_that_fits() -> None:
    space = SearchSpace.from_json(
        {
            "knobs": {
                "rollout_engine": ["vllm", "transformers"],
                "gpu_memory_utilization": [0.3, 0.5, 0.7, 0.9],
                "micro_batch_size": [1, 2, 4, 8],
                "gradient_checkpointing": [True, False],
            }
        }
    )
    wanted = asked(space)
    every = space.candidates(wanted.baseline, wanted.resources, same_learning=True)
    for limit in (30, 50, 70, 90):
        fitting = [c for c in every if Peaks.peak(c) <= limit * GIB]
        found = not_none(search(wanted, forecasts(limit * GIB), 3))
        best = found.table.configurations[found.best[0]]
        assert Times.seconds(best) <= math.exp(ALIKE) * min(Times.seconds(c) for c in fitting)
        assert Peaks.peak(best) <= limit * GIB


def test_steps_find_in_a_huge_space_what_a_sample_misses() -> None:
    wanted = replace(asked(SearchSpace.load("node-8gpu")), sample=1000)
    model = forecasts(70 * GIB)
    found = not_none(search(wanted, model, 5))
    best = found.table.configurations[found.best[0]]
    sample = wanted.space.candidates(wanted.baseline, wanted.resources, same_learning=True, limit=1000)
    fitting = [Times.seconds(c) for c in sample if Peaks.peak(c) <= 70 * GIB]
    assert Times.seconds(best) <= math.exp(ALIKE) * min(fitting)
    given = {name for name, value in best.items() if wanted.baseline.get(name, value) != value}
    assert given <= {*SHAPE, *BATCH_KNOBS, "gpu_memory_utilization"}, "what gives nothing stays as it was"
    for index in found.best:
        configuration = found.table.configurations[index]
        assert legality.is_legal(configuration, wanted.resources, wanted.baseline)
        assert found.table.peaks.fits[index] >= SURE
    scores = [float(found.table.score()[i]) for i in found.best]
    assert all(first >= second - 1e-3 for first, second in itertools.pairwise(scores))
    assert len(set(found.table.configurations)) == len(found.table.configurations)


def test_where_nothing_fits_the_closest_is_named_and_nothing_counts_as_fitting() -> None:
    knobs = {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}
    space = SearchSpace.from_json({"knobs": knobs})
    wanted = asked(space)
    found = not_none(search(wanted, forecasts(1.0), 5))
    assert found.fitting == 0
    best = found.table.configurations[found.best[0]]
    every = space.candidates(wanted.baseline, wanted.resources, same_learning=True)
    assert Peaks.peak(best) == min(Peaks.peak(c) for c in every)


def test_what_is_predicted_of_one_is_consistent() -> None:
    model = forecasts(70 * GIB)
    wanted = asked(SearchSpace.load("single-gpu"), 1)
    table = model.table((wanted.baseline,))
    found = model.predicted(table, 0)
    assert found.low < found.tokens_per_hour < found.high
    assert found.peak_low < found.peak < found.peak_high
    assert found.tokens_per_hour == pytest.approx(3600 * 8192 / Times.seconds(wanted.baseline))
    assert "update takes 100 % of a cycle" in found.limit()


@pytest.mark.parametrize(("word", "name"), [("H100", "h100"), ("a100-80GB", "a100"), ("RTX 4090", "rtx4090")])
def test_gpus_by_any_spelling(word: str, name: str) -> None:
    assert gpu_named(word).name == name


def test_a_step_keeps_what_is_left_to_the_framework() -> None:
    """A knob that a configuration leaves unset does not come back to the baseline's value in a step of other knobs."""
    knobs = {"max_num_seqs": ["unset", 64], "enforce_eager": [True, False], "prefix_caching": ["unset", False]}
    wanted = asked(SearchSpace.from_json({"knobs": knobs}))
    own = wanted.baseline.with_(rollout_engine="vllm", max_num_seqs=128)
    wanted = replace(wanted, baseline=own)
    here = next(
        c for c in wanted.space.candidates(own, wanted.resources, same_learning=True) if "max_num_seqs" not in c
    )
    near = _around(wanted, here, ("enforce_eager", "prefix_caching"))
    assert len(near) == 4
    assert all("max_num_seqs" not in c for c in near)
