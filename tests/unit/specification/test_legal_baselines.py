"""A baseline trains on a generation as often as its author wrote, and so do the candidates beside it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import RewardSpec
from autotune.frameworks import framework_named
from autotune.specification import build
from autotune.specification.published_baseline import with_published
from autotune.specification.request import GPU_SIZE, Request, ResolvedRequest, with_defaults
from search_spaces.batch import batch_of
from search_spaces.configuration import Configuration, ModelFacts, Resources
from search_spaces.legality import check, check_baseline
from search_spaces.published import PUBLISHED, Published
from search_spaces.space import SearchSpace

H100: dict[str, Any] = {"device": "cuda", "compute_capability": (9, 0)}
GROUP = 8


def study_of(one: Published) -> tuple[ResolvedRequest, SearchSpace, Resources]:
    """The study that ``--baseline NAME`` begins, on the GPUs the configuration was written for."""
    framework, reward = framework_named(one.framework), (RewardSpec("file", "score", "/r.py"),)
    request = Request(framework=one.framework, published=one.name, folder="/work", data="p.jsonl", rewards=reward)
    whole = with_defaults(with_published(request, one.gpus)[0], GPU_SIZE, "")
    machine = Resources(gpus=one.gpus, framework=one.framework, **H100)
    space, _ = build.fitted(build.load_space(whole, machine), framework)
    space, _ = build.without_server(space, framework)
    return whole, space, build.resources_for(machine, whole, ModelFacts(), {})


@pytest.mark.parametrize("one", list(PUBLISHED.values()), ids=list(PUBLISHED))
def test_every_published_baseline_is_legal_on_the_gpus_it_was_written_for(one: Published) -> None:
    whole, space, resources = study_of(one)
    baseline = build.baseline_of(whole, space, resources)
    build.check_passthrough(whole, baseline, resources)
    build.check_baseline(whole, baseline, resources)
    batch = batch_of(baseline, resources)
    assert (batch.rows, Fraction(batch.steps, batch.accumulation)) == (one.rows_per_update, one.reuse)
    for same_learning in (True, False):
        found = space.candidates(baseline, resources, same_learning=same_learning, limit=200)
        assert found
        assert one.reuse == 1 or {reuse_of(each, resources) for each in found} == {one.reuse}


@pytest.mark.parametrize(
    ("gpus", "software", "expected"),
    [
        (1, {"torch": "2.11.0", "vllm": "0.24.0"}, {"tensor_parallel_size": 1, "attn_implementation": "sdpa"}),
        (8, {"torch": "2.11.0", "vllm": "0.24.0"}, {"tensor_parallel_size": 2, "attn_implementation": "sdpa"}),
        (
            3,
            {"torch": "2.11.0", "vllm": "0.24.0", "flash_attn": "2.8.3"},
            {"tensor_parallel_size": 1, "attn_implementation": "flash_attention_2"},
        ),
    ],
)
def test_verls_own_baseline_is_what_the_machine_and_its_environment_have(
    gpus: int, software: dict[str, str], expected: dict[str, Any]
) -> None:
    """verl's own are 2 GPUs an engine and flash attention; a baseline nobody wrote follows what is there."""
    whole, verl = (
        ResolvedRequest(framework="verl", rows_per_update=24 * gpus, max_completion_length=256),
        framework_named("verl"),
    )
    machine = Resources(gpus=gpus, framework="verl", **H100)
    resources = build.resources_for(machine, whole, ModelFacts(), software)
    space, _ = build.without_server(build.fitted(build.load_space(whole, machine), verl)[0], verl)
    baseline = build.baseline_of(whole, space, resources)
    build.check_baseline(whole, baseline, resources)
    unset = {"tensor_parallel_size": 2, "attn_implementation": "flash_attention_2"}
    assert {name: baseline.get(name, value) for name, value in unset.items()} == expected
    asked = replace(whole, baseline={"attn_implementation": "eager", "tensor_parallel_size": gpus})
    own = build.baseline_of(asked, space, resources)
    assert (own["attn_implementation"], own["tensor_parallel_size"]) == ("eager", gpus)


def reuse_of(configuration: Configuration, resources: Resources) -> Fraction:
    batch = batch_of(configuration, resources)
    return Fraction(batch.steps, batch.accumulation)


@given(
    micro=st.sampled_from([1, 2, 4, 8]),
    accumulation=st.sampled_from([1, 2, 4, 8]),
    reuse=st.sampled_from([2, 3, 4, 8]),
    gpus=st.sampled_from([1, 2, 4, 8]),
    same_learning=st.booleans(),
)
def test_candidates_train_as_often_on_a_generation_as_the_baseline(
    micro: int, accumulation: int, reuse: int, gpus: int, same_learning: bool
) -> None:
    """TRL documents GSPO with ``steps_per_generation`` of four times the accumulation (``grpo_config.py:1111``)."""
    values: dict[str, Any] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": reuse * accumulation,
        "num_generations": GROUP,
    }
    rows = gpus * micro * accumulation
    resources = Resources(gpus=gpus, rows_per_update=rows, num_generations=GROUP, **H100)
    found = check_baseline(values, resources)
    whole = (rows * reuse) % GROUP == 0
    assert [v.rule for v in found] == ([] if whole else ["whole_groups"])
    if not whole:
        return
    space = SearchSpace.from_json(
        {"knobs": {"micro_batch_size": [1, 2, 4, 8], "steps_per_generation": ["accumulation", 1, 2, 8]}}
    )
    baseline = space.complete(values, resources)
    candidates = space.candidates(baseline, resources, same_learning=same_learning)
    assert baseline in candidates
    assert {reuse_of(each, resources) for each in candidates} == {reuse}
    assert all(check(each, resources, baseline) == () for each in candidates)


def test_a_baseline_that_misses_its_rows_is_still_refused() -> None:
    resources = Resources(rows_per_update=32, num_generations=8)
    values = {"micro_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 8}
    (found,) = check_baseline(values, resources)
    assert found.rule == "rows_per_update"


def test_a_nearest_value_keeps_the_reuse() -> None:
    resources = Resources(gpus=3, rows_per_update=48, num_generations=8, **H100)
    values = {"micro_batch_size": 1, "gradient_accumulation_steps": 16, "steps_per_generation": 20}
    (found,) = check_baseline({**values, "num_generations": 8}, resources)
    assert found.rule == "whole_groups"
    for name, value in found.nearest:
        if name == "micro_batch_size":
            moved = 16 // int(value)
            assert (
                check_baseline(
                    {
                        **values,
                        "num_generations": 8,
                        name: value,
                        "gradient_accumulation_steps": moved,
                        "steps_per_generation": moved * 20 // 16,
                    },
                    resources,
                )
                == ()
            )
