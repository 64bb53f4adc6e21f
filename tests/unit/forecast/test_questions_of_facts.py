"""A plan's question from a few facts: what is not said is presumed and told, and what is too much is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.forecast.accuracy import NONE
from autotune.forecast.answer import Accuracy
from autotune.forecast.architecture import architecture
from autotune.forecast.facts import MOST_GPUS, Facts, architecture_of, known_gpu, question_of
from autotune.forecast.gpus import GPUS
from autotune.forecast.with_models import _less_sure, forecasts_for, plan_from_readings
from search_spaces.configuration import ModelFacts
from tests.support.imports import of
from tests.support.published_models import PUBLISHED

HALF = ModelFacts(parameters=494_032_768)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_model_that_is_known_is_not_guessed(name: str) -> None:
    config, parameters = PUBLISHED[name]
    facts = architecture(config).facts
    made = architecture_of(facts)
    assert (made.parameters, made.layers, made.hidden_size) == (parameters, facts.layers, facts.hidden_size)
    assert not made.guessed
    assert made.notes == ()
    assert made.facts == facts


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_guess_is_near_in_size_and_says_that_it_is_one(name: str) -> None:
    config, parameters = PUBLISHED[name]
    real, made = architecture(config), architecture_of(ModelFacts(parameters=parameters))
    assert made.guessed
    assert made.notes
    assert made.facts.vocabulary is None, "so the formulas doubt all sizes"
    assert 1 / 2.5 < made.hidden_size / real.hidden_size < 2.5
    assert 1 / 4 < made.layers / real.layers < 4


@given(parameters=st.integers(1, 10**15))
def test_any_number_of_parameters_is_a_model(parameters: int) -> None:
    made = architecture_of(ModelFacts(parameters=parameters))
    assert made.layers >= 1
    assert made.hidden_size >= 1
    assert made.heads >= made.kv_heads >= 1
    assert made.head_size >= 1


@pytest.mark.parametrize(("word", "name"), of("a_gpu_is_known_by_its_name_or_its_drivers"))
def test_a_gpu_is_known_by_its_name_or_its_drivers(word: str, name: str | None) -> None:
    assert known_gpu(word) == (None if name is None else GPUS[name])


@pytest.mark.parametrize(("gpus", "split"), [(1, (1, 1)), (8, (8, 1)), (16, (8, 2)), (MOST_GPUS, (8, 128))])
def test_many_gpus_are_nodes_of_eight(gpus: int, split: tuple[int, int]) -> None:
    question, presumed = question_of(Facts(HALF, "h100", gpus=gpus))
    assert (question.machine.gpus, question.machine.nodes) == split
    assert ("nodes of 8 GPUs" in presumed[0]) is (gpus > 8)
    assert "1 GPU" not in presumed[0]


def test_what_is_said_is_not_presumed() -> None:
    said: dict[str, Any] = {
        "gpus": 2, "framework": "TRL", "rows_per_update": 64, "max_prompt_length": 100, "max_completion_length": 300,
    }  # fmt: skip
    question, presumed = question_of(Facts(HALF, "h100", **said))
    load = question.load
    assert (load.framework, load.rows_per_update, load.max_prompt_length, load.max_completion_length) == (
        "trl", 64, 100, 300,
    )  # fmt: skip
    assert "rows per update" not in presumed[0]
    assert "150 tokens on average" in presumed[0]


def test_memory_that_may_be_used_is_all_the_gpu_has_then() -> None:
    question, _ = question_of(Facts(HALF, "h100", memory=10**10))
    assert question.machine.memory == question.gpu.memory == question.resources.device_memory == 10**10
    whole, _ = question_of(Facts(HALF, "l4", memory=10**15))
    assert whole.machine.memory == GPUS["l4"].memory


def test_a_guess_makes_intervals_wider_and_figures_no_other() -> None:
    question, _ = question_of(Facts(HALF, "h100", max_completion_length=64))
    small = replace(question, space=replace(question.space, values={"micro_batch_size": (1, 2)}))
    forecasts = forecasts_for(small)
    before = forecasts.predicted(forecasts.table((small.baseline(),)), 0)
    after = _less_sure(before)
    assert after.tokens_per_hour == before.tokens_per_hour
    assert after.low < before.low < before.high < after.high
    found = plan_from_readings(small, ())
    assert found.accuracy == Accuracy(NONE)
    assert found.baseline.low == pytest.approx(after.low)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": None}, "gpu is needed"),
        ({"gpu": "tpu"}, "known are t4"),
        ({"model": ModelFacts()}, "params_b is needed"),
        ({"gpus": 0}, "at least 1"),
        ({"gpus": 12}, "nodes of 8"),
        ({"gpus": MOST_GPUS + 8}, "more than is looked at"),
        ({"framework": "x\x1b[31m"}, "is not known"),
        ({"max_prompt_length": 10**9}, "more than is looked at"),
    ],
)
def test_what_is_too_little_or_too_much(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        question_of(replace(Facts(HALF, "h100"), **changes))
    assert "\x1b" not in str(caught.value)
