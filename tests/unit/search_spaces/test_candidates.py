"""Candidates: legal, comparable, each once, the same each time."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.batch import rows_allowed
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import KNOBS, Effect, effect_of_change
from search_spaces.legality import check, is_legal
from search_spaces.space import SearchSpace
from tests.support.properties import examples
from trainer.frameworks.trl.keys import SUPPORTED

BASELINE = Configuration(
    {
        "micro_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 2,
        "num_generations": 4,
        "precision": "fp32",
        "master_weights": "fp32",
    }
)
RESOURCES = Resources(rows_per_update=16, num_generations=4)


def space_of(**knobs: Any) -> SearchSpace:
    return SearchSpace.from_json({"knobs": knobs})


def test_the_accumulation_keeps_rows_per_update() -> None:
    found = space_of(micro_batch_size=[1, 2, 4, 8, 16]).candidates(BASELINE, RESOURCES, same_learning=True)
    assert [(c["micro_batch_size"], c["gradient_accumulation_steps"], c["steps_per_generation"]) for c in found] == [
        (1, 16, 16),
        (2, 8, 8),
        (4, 4, 4),
        (8, 2, 2),
        (16, 1, 1),
    ]


def test_rows_per_rollout_stay_as_in_the_baseline() -> None:
    """Half an update per generation stays half an update."""
    baseline = BASELINE.with_(micro_batch_size=2, gradient_accumulation_steps=8, steps_per_generation=4)
    found = space_of(micro_batch_size=[1, 2, 4]).candidates(baseline, RESOURCES, same_learning=True)
    assert {(c["micro_batch_size"], c["steps_per_generation"]) for c in found} == {(1, 8), (2, 4), (4, 2)}


def test_an_off_policy_baseline_stays_as_off_policy() -> None:
    baseline = BASELINE.with_(steps_per_generation=4)
    found = space_of(micro_batch_size=[4, 8], steps_per_generation=[1, 2]).candidates(
        baseline, RESOURCES, same_learning=True
    )
    assert {(c["micro_batch_size"], c["steps_per_generation"]) for c in found} == {(4, 8), (8, 4)}


def test_without_a_target_the_baselines_own_rows_are_kept() -> None:
    baseline = BASELINE.with_(gradient_accumulation_steps=3, steps_per_generation=3)
    found = space_of(micro_batch_size=[4, 8, 12]).candidates(baseline, Resources(), same_learning=True)
    assert {c["gradient_accumulation_steps"] for c in found} == {6, 3, 2}


def test_the_word_and_the_number_are_one_candidate() -> None:
    found = space_of(steps_per_generation=["accumulation", 1, 2]).candidates(BASELINE, RESOURCES, same_learning=False)
    assert [c["steps_per_generation"] for c in found] == [2, 1]


def test_another_number_of_generations_in_an_update_is_another_average() -> None:
    """With TRL's default loss it is another gradient, so it is no speed knob."""
    space = space_of(micro_batch_size=[2, 4, 8], steps_per_generation=["accumulation", 1, 2])
    same = space.candidates(BASELINE, RESOURCES, same_learning=True)
    assert {(c["micro_batch_size"], c["steps_per_generation"]) for c in same} == {(2, 8), (4, 4), (8, 2)}
    free = space.candidates(BASELINE, RESOURCES, same_learning=False)
    assert {(c["micro_batch_size"], c["steps_per_generation"]) for c in free} > {(4, 2), (8, 1), (8, 2)}
    for candidate in free:
        whole = candidate["steps_per_generation"] == candidate["gradient_accumulation_steps"]
        assert (effect_of_change(candidate, BASELINE, "trl") is Effect.SPEED) == whole


def test_where_nothing_listed_has_as_many_generations_the_baselines_batch_stays() -> None:
    """One micro-batch to an update cannot be two generations."""
    baseline = BASELINE.with_(steps_per_generation=1)
    found = space_of(micro_batch_size=[16], attn_implementation=["sdpa", "eager"]).candidates(
        baseline, RESOURCES, same_learning=True
    )
    assert {(c["micro_batch_size"], c["steps_per_generation"]) for c in found} == {(8, 1)}
    assert len(found) == 2


def test_what_is_averaged_over_each_micro_batch_keeps_its_size() -> None:
    machine = Resources(rows_per_update=16, num_generations=4, per_micro_batch="loss_type bnpo")
    space = space_of(micro_batch_size=[2, 4, 16], attn_implementation=["sdpa", "eager"])
    for same_learning in (True, False):
        found = space.candidates(BASELINE, machine, same_learning=same_learning)
        assert {c["micro_batch_size"] for c in found} == {8}
        assert len(found) == 2
    assert space.explain(BASELINE, machine).removed["micro_batch_average"] > 0


def test_the_baseline_has_the_key_of_its_candidate() -> None:
    space = SearchSpace.load("cpu")
    bare = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 2, "precision": "fp32"})
    complete = space.complete(bare, RESOURCES)
    assert complete in space.candidates(bare, RESOURCES, same_learning=True)
    assert space.complete(complete, RESOURCES) == complete
    assert complete["steps_per_generation"] == 2


def test_every_candidate_sets_the_same_knobs() -> None:
    space = SearchSpace.load("cpu")
    baseline = BASELINE.with_(torch_compile=False)
    keys = {tuple(c) for c in space.candidates(baseline, RESOURCES, same_learning=False)}
    assert keys == {tuple(space.complete(baseline, RESOURCES))}
    assert set(baseline) | set(space.values) == set(next(iter(keys)))


def test_same_learning_keeps_numerics_and_learning() -> None:
    space = SearchSpace.load("cpu")
    complete = space.complete(BASELINE, RESOURCES)
    same = space.candidates(BASELINE, RESOURCES, same_learning=True)
    every = space.candidates(BASELINE, RESOURCES, same_learning=False)
    assert same
    assert {effect_of_change(c, complete, "trl") for c in same} == {Effect.SPEED}
    assert {c["optimizer"] for c in same} == {"adamw_torch", "adamw_torch_fused"}
    assert set(same) < set(every)
    assert {c["num_generations"] for c in every} == {4, 8}


def test_learning_stays_where_it_is_not_allowed() -> None:
    space = SearchSpace.load("cpu")
    machine = Resources(rows_per_update=16, num_generations=4, allow_learning=False)
    found = space.candidates(BASELINE, machine, same_learning=False)
    assert {c["num_generations"] for c in found} == {4}
    assert {c["precision"] for c in found} == {"fp32", "bf16"}


def test_a_fixed_knob_gives_way_to_the_baseline_where_learning_must_stay() -> None:
    space = space_of(micro_batch_size=[4, 8], precision="bf16", gradient_checkpointing=False)
    same = space.candidates(BASELINE, RESOURCES, same_learning=True)
    assert {(c["precision"], c["gradient_checkpointing"]) for c in same} == {("fp32", False)}
    free = space.candidates(BASELINE, RESOURCES, same_learning=False)
    assert {c["precision"] for c in free} == {"bf16"}


def test_knobs_that_are_off_rest_instead_of_multiplying() -> None:
    space = space_of(
        rollout_engine=["transformers", "vllm"],
        gpu_memory_utilization=[0.4, 0.5, 0.6],
        enforce_eager=[True, False],
        cuda_graph_max_batch=[64, 128],
    )
    machine = Resources(gpus=1, device="cuda", rows_per_update=16)
    found = space.candidates(BASELINE, machine, same_learning=True)
    plain = [c for c in found if c["rollout_engine"] == "transformers"]
    assert len(plain) == 1
    assert plain[0]["gpu_memory_utilization"] == 0.3
    assert len(found) == 1 + 3 * (1 + 2)
    assert space.explain(BASELINE, machine).combinations == 10


def test_a_log_prob_pass_is_cut_to_the_rows_there_are() -> None:
    space = space_of(logprob_rows=[2, 8, 64, 128], steps_per_generation=[1, 2])
    found = space.candidates(BASELINE, RESOURCES, same_learning=False)
    assert sorted((c["steps_per_generation"], c["logprob_rows"]) for c in found) == [
        (1, 2),
        (1, 8),
        (2, 2),
        (2, 8),
        (2, 16),
    ]


def test_what_a_space_requires_is_said() -> None:
    data = {"require": {"gpus": 4, "frameworks": ["trl"]}, "knobs": {"micro_batch_size": [4, 8]}}
    space = SearchSpace.from_json(data)
    assert space.candidates(BASELINE, RESOURCES, same_learning=True) == ()
    explanation = space.explain(BASELINE, RESOURCES)
    assert explanation.legal == 0
    assert explanation.examples["space_requires"].sentence == "the space needs 4 GPUs on each node, and 0 are given."


def test_an_empty_result_says_which_rule_killed_most() -> None:
    space = space_of(attn_implementation=["flash_attention_2", "flash_attention_3"], micro_batch_size=[1, 8])
    explanation = space.explain(BASELINE, RESOURCES)
    assert explanation.combinations == 4
    assert explanation.legal == 0
    assert dict(explanation.removed) == {"attention_kernel": 4}
    assert "this is a CPU run" in explanation.examples["attention_kernel"].sentence


HUGE = {
    "micro_batch_size": {"min": 1, "max": 64},
    "steps_per_generation": {"min": 1, "max": 64},
    "num_generations": {"min": 2, "max": 64},
    "logprob_rows": {"min": 1, "max": 64},
    "logprob_token_chunk": {"min": 16, "max": 1000},
    "logprob_vocab_chunk": {"min": 128, "max": 1100},
    "pad_to_multiple": {"min": 1, "max": 900},
    "dataloader_workers": {"min": 0, "max": 200},
    "empty_cache_steps": {"min": 0, "max": 999},
    "gradient_checkpointing": [True, False],
}


@pytest.mark.timeout(120)
def test_a_space_beyond_counting_is_sampled_the_same_each_time() -> None:
    space = SearchSpace.from_json({"knobs": HUGE})
    machine = Resources(rows_per_update=64)
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 8})
    found = space.candidates(baseline, machine, same_learning=False, limit=500, seed=3)
    assert len(found) == len(set(found)) == 500
    assert found == space.candidates(baseline, machine, same_learning=False, limit=500, seed=3)
    assert found != space.candidates(baseline, machine, same_learning=False, limit=500, seed=4)
    assert all(check(c, machine, baseline) == () for c in found[::25])


def test_a_sample_covers_the_space() -> None:
    machine = Resources(gpus=1, device="cuda", compute_capability=(9, 0), rows_per_update=64)
    space, _ = SearchSpace.load("single-gpu").fitted("trl", SUPPORTED)
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 8})
    every = space.candidates(baseline, machine, same_learning=False)
    some = space.candidates(baseline, machine, same_learning=False, limit=400)
    chosen = set(some)
    assert chosen < set(every)
    assert [c for c in every if c in chosen] == list(some), "in the order of the whole"
    for name in space.values:
        assert {c[name] for c in some if name != "steps_per_generation"} == {
            c[name] for c in every if name != "steps_per_generation"
        }


def test_an_engine_with_many_knobs_does_not_crowd_out_one_with_few() -> None:
    """vLLM's own knobs make hundreds of combinations of each that transformers has one of."""
    space = SearchSpace.load("single-gpu")
    machine = Resources(gpus=1, device="cuda", compute_capability=(9, 0), rows_per_update=64)
    baseline = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 8})
    found = space.candidates(baseline, machine, same_learning=False, limit=600)
    counts = Counter((c["rollout_engine"], c["continuous_batching"]) for c in found)
    assert len(found) == len(set(found)) == 600
    assert set(counts) == {("vllm", False), ("transformers", False), ("transformers", True)}
    assert min(counts.values()) >= 600 // 6
    assert counts[("vllm", False)] == max(counts.values())


# --- against brute force -----------------------------------------------------------------------------------------

CHOICES: dict[str, list[KnobValue]] = {
    "micro_batch_size": [1, 2, 3, 4, 6, 8],
    "num_generations": [2, 3, 4, 8],
    "steps_per_generation": [1, 2, 3],
    "gradient_checkpointing": [True, False],
    "precision": ["fp32", "bf16", "fp16", "fp8"],
    "master_weights": ["fp32", "bf16"],
    "attn_implementation": ["sdpa", "flash_attention_2"],
    "optimizer": ["adamw_torch", "adamw_8bit"],
    "expandable_segments": [True, False],
}


@st.composite
def small_spaces(draw: st.DrawFn) -> dict[str, list[KnobValue]]:
    names = draw(st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=4, unique=True))
    return {name: draw(st.lists(st.sampled_from(CHOICES[name]), min_size=2, max_size=3, unique=True)) for name in names}


@examples(25, 60)
@given(knobs=small_spaces(), gpus=st.sampled_from([0, 1, 3]), rows=st.sampled_from([12, 16, 24]))
def test_candidates_are_what_trying_everything_finds(knobs: dict[str, list[KnobValue]], gpus: int, rows: int) -> None:
    resources = Resources(gpus=gpus, device="cuda" if gpus else "cpu", rows_per_update=rows)
    group = 4
    baseline = Configuration(
        {"micro_batch_size": 1, "num_generations": group, "gradient_accumulation_steps": rows // max(1, gpus)}
    )
    space = SearchSpace.from_json({"knobs": knobs})
    complete = space.complete(baseline, resources)
    expected = set()
    for choice in itertools.product(*knobs.values()):
        values = {**complete, **dict(zip(knobs, choice, strict=True))}
        ranks = max(1, gpus)
        by_distance = sorted(
            range(1, 2 * rows), key=lambda n: (abs(n * ranks * int(values["micro_batch_size"]) - rows), n)
        )
        for accumulation in by_distance:
            steps = values["steps_per_generation"] if "steps_per_generation" in knobs else accumulation
            tried = Configuration(
                {**values, "gradient_accumulation_steps": accumulation, "steps_per_generation": steps}
            )
            batch = ranks * int(tried["micro_batch_size"])
            if rows_allowed(batch * accumulation, rows, ranks) and is_legal(tried, resources, complete):
                expected.add(tried)
                break
    found = space.candidates(baseline, resources, same_learning=False)
    assert set(found) == expected
    assert len(found) == len(set(found))
    assert space.explain(baseline, resources).legal == len(found)


def test_counts_by_rule_are_what_trying_everything_finds() -> None:
    knobs = {
        "precision": ["fp32", "bf16", "fp8", "fp16"],
        "master_weights": ["fp32", "bf16"],
        "attn_implementation": ["sdpa", "flash_attention_2", "eager"],
    }
    space = SearchSpace.from_json({"knobs": knobs})
    complete = space.complete(BASELINE, RESOURCES)
    counts: dict[str, int] = {}
    for choice in itertools.product(*knobs.values()):
        for violation in check(complete.with_(**dict(zip(knobs, choice, strict=True))), RESOURCES, complete):
            counts[violation.rule] = counts.get(violation.rule, 0) + 1
    assert dict(space.explain(BASELINE, RESOURCES).removed) == counts
    assert KNOBS.keys() >= knobs.keys()
