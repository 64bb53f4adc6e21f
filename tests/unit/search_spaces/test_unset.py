"""``unset`` among a knob's values: a candidate that leaves the knob to the framework."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import FRAMEWORKS, KNOBS, defaults
from search_spaces.legality import check, is_legal
from search_spaces.native import UNSET, must_be_known, resolved
from search_spaces.space import SearchSpace
from tests.support.properties import examples

GPU = Resources(gpus=1, device="cuda", compute_capability=(9, 0), rows_per_update=16, num_generations=4)
BASELINE = Configuration(
    {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "num_generations": 4, "rollout_engine": "vllm"}
)


def space_of(**knobs: Any) -> SearchSpace:
    return SearchSpace.from_json({"knobs": knobs})


def candidates(space: SearchSpace, machine: Resources = GPU, baseline: Configuration = BASELINE) -> Any:
    return space.candidates(baseline, machine, same_learning=False)


def test_a_candidate_simply_does_not_set_it() -> None:
    space = space_of(max_num_seqs=[UNSET, 64, 256], enforce_eager=[False, True])
    found = candidates(space)
    assert {(c.get("max_num_seqs"), c["enforce_eager"]) for c in found} == {
        (n, eager) for n in (None, 64, 256) for eager in (False, True)
    }
    assert len(found) == space.size == 6
    assert UNSET not in {v for c in found for v in c.values()}
    explanation = space.explain(BASELINE, GPU)
    assert (explanation.combinations, explanation.legal) == (6, 6)


def test_a_baseline_that_leaves_it_unset_is_one_of_the_candidates() -> None:
    space = space_of(max_num_seqs=[64, UNSET], enforce_eager=[False, True])
    whole = space.complete(BASELINE, GPU)
    assert "max_num_seqs" not in whole
    assert whole in candidates(space)
    assert space.complete(whole, GPU) == whole


def test_a_baseline_that_sets_it_can_lose_it() -> None:
    space = space_of(max_num_seqs=[UNSET, 64], enforce_eager=[False, True])
    found = candidates(space, baseline=BASELINE.with_(max_num_seqs=128))
    assert {c.get("max_num_seqs") for c in found} == {None, 64}


@pytest.mark.parametrize("listed", [[UNSET, True, False], [False, UNSET], [UNSET, False]])
def test_a_default_that_is_known_is_the_same_candidate(listed: list[Any]) -> None:
    found = candidates(space_of(prefix_caching=listed))
    assert sorted(c["prefix_caching"] for c in found) == [False, True]


def test_what_the_framework_has_no_setting_for_is_left_out_of_every_candidate() -> None:
    space = space_of(
        micro_batch_size=[2, 4], remove_padding=[UNSET, True, False], logprob_token_chunk=[UNSET, 1024, 4096]
    )
    none, own = replace(GPU, framework="open_r1"), BASELINE.with_(rollout_mode="colocate")
    assert {"remove_padding", "logprob_token_chunk"}.isdisjoint(space.complete(own, none))
    found = candidates(space, none, own)
    assert {tuple(c) for c in found} == {tuple(space.complete(own, none))}
    assert len(found) == 2
    assert "framework_has_knob" not in space.explain(own, none).removed
    assert {c["logprob_token_chunk"] for c in candidates(space)} == {1024, 4096}


def test_open_r1_colocates_an_engine_it_has_no_key_for() -> None:
    knobs: dict[str, Any] = {"max_num_seqs": [64, 256], "max_num_batched_tokens": [4096, 8192]}
    machine = replace(GPU, framework="open_r1")
    own = BASELINE.with_(rollout_mode="colocate")
    assert candidates(space_of(**knobs), machine, own) == ()
    (found,) = candidates(space_of(**{name: [UNSET, *values] for name, values in knobs.items()}), machine, own)
    assert set(knobs).isdisjoint(found)
    assert check(found, machine, own) == ()


def test_where_it_cannot_act_it_rests_as_any_value_does() -> None:
    space = space_of(rollout_engine=["transformers", "vllm"], max_num_seqs=[UNSET, 64])
    found = candidates(space)
    assert [(c["rollout_engine"], c.get("max_num_seqs")) for c in found] == [
        ("transformers", 256),
        ("vllm", None),
        ("vllm", 64),
    ]
    own = space.complete(BASELINE.with_(rollout_engine="transformers"), GPU)
    assert own in found


def test_a_rule_judges_what_the_framework_does_of_it() -> None:
    """TRL builds its engine for the rows of one generation where nobody says for how many."""
    for tokens, legal in ((15, {8}), (16, {None, 8})):
        space = space_of(max_num_seqs=[UNSET, 8, 64], max_num_batched_tokens=[tokens])
        assert {c.get("max_num_seqs") for c in candidates(space)} == legal


CHOICES: dict[str, list[KnobValue]] = {
    "rollout_engine": ["transformers", "vllm"],
    "enforce_eager": [True, False],
    "max_num_seqs": [UNSET, 4, 64],
    "max_num_batched_tokens": [UNSET, 8, 4096],
    "cuda_graph_max_batch": [UNSET, 16],
    "kv_cache_memory_bytes": [1 << 30, UNSET],
    "prefix_caching": [False, UNSET],
    "sleep_level": [0, 2],
    "pad_to_multiple": [UNSET, 64],
    "hub_kernels": [UNSET, False, True],
}


@examples(30, 80)
@given(
    names=st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=5, unique=True),
    framework=st.sampled_from(FRAMEWORKS),
    gpus=st.sampled_from([0, 1]),
)
def test_candidates_are_what_trying_everything_finds(names: list[str], framework: str, gpus: int) -> None:
    machine = replace(GPU, framework=framework, gpus=gpus, device="cuda" if gpus else "cpu")
    knobs = {name: CHOICES[name] for name in names}
    space = SearchSpace.from_json({"knobs": knobs})
    own = BASELINE.with_(rollout_mode="colocate", logprob_rows=4)
    whole = space.complete(own, machine)
    expected = set()
    for choice in itertools.product(*knobs.values()):
        chosen = dict(zip(knobs, choice, strict=True))
        left = {name for name, value in chosen.items() if value == UNSET}
        absent = {name for name in names if UNSET in knobs[name] and framework not in KNOBS[name].frameworks}
        values = {**whole, **chosen}
        tried = space.complete({n: v for n, v in values.items() if n not in left | absent}, machine)
        if is_legal(tried, machine, whole):
            expected.add(tried)
    found = space.candidates(own, machine, same_learning=False)
    assert set(found) == expected
    assert len(found) == len(set(found))
    assert space.explain(own, machine).legal == len(found)


def test_a_space_with_it_travels_as_json_and_through_extends(tmp_path: Path) -> None:
    space = space_of(max_num_seqs=[64, UNSET], enforce_eager=[False, True])
    assert SearchSpace.from_json(space.as_json()) == space
    path = tmp_path / "mine.yaml"
    path.write_text("extends: node-8gpu\nknobs: {max_num_seqs: [unset, 96], max_num_batched_tokens: null}\n")
    found = SearchSpace.load(path)
    assert found.values["max_num_seqs"] == (UNSET, 96)
    assert "max_num_batched_tokens" not in found.values


@pytest.mark.parametrize("name", sorted(n for n, knob in KNOBS.items() if must_be_known(knob) and not knob.derived))
def test_what_a_trial_must_know_cannot_be_unset(name: str) -> None:
    with pytest.raises(SpaceError) as refused:
        SearchSpace.from_json({"knobs": {name: [UNSET], "enforce_eager": [True, False]}})
    assert str(refused.value) == (
        f"search space: knobs.{name}: it must be known in every trial and cannot be unset; "
        "list its values, or leave the knob out to keep the baseline's."
    )


def test_the_batch_and_what_generates_must_be_known() -> None:
    known = {name for name, knob in KNOBS.items() if must_be_known(knob)}
    assert known >= {"micro_batch_size", "num_generations", "steps_per_generation", "gradient_accumulation_steps"}
    assert known >= {"rollout_engine", "rollout_mode", "rollout_gpus", "logprob_rows"}


def test_alone_it_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("knobs:\n  micro_batch_size: [1, 2]\n  max_num_seqs: unset\n")
    with pytest.raises(SpaceError) as refused:
        SearchSpace.load(path)
    assert str(refused.value) == (
        f"{path}, line 3: knobs.max_num_seqs: unset stands in a list beside values; "
        "list its values, or leave the knob out to keep the baseline's."
    )


def test_twice_is_too_often() -> None:
    with pytest.raises(SpaceError, match="max_num_seqs: unset is listed twice"):
        space_of(max_num_seqs=[UNSET, 8, UNSET])


def test_what_others_depend_on_is_never_left_open() -> None:
    """Whether a knob acts is asked of those it needs, so these have a value wherever they are."""
    needed = {name for knob in KNOBS.values() for name in knob.needs}
    for name in needed:
        if not must_be_known(KNOBS[name]):
            assert all(name in defaults(framework) for framework in KNOBS[name].frameworks), name


def test_resolved_keeps_the_order_and_each_value_once() -> None:
    listed: dict[str, tuple[KnobValue, ...]] = {
        "max_num_batched_tokens": (8192, UNSET, 4096),
        "max_num_seqs": (UNSET, 8),
    }
    assert resolved(listed, "trl") == {"max_num_batched_tokens": (8192, 4096), "max_num_seqs": (UNSET, 8)}
    assert resolved(listed, "verl") == {"max_num_batched_tokens": (8192, 4096), "max_num_seqs": (256, 8)}
    assert resolved(listed, "open_r1") == listed


@pytest.mark.parametrize("framework", ["trl", "open_r1"])
def test_a_server_whose_share_nobody_says_has_its_own_commands(framework: str) -> None:
    """A colocated engine's would be a third of what the user's server has."""
    space = space_of(gpu_memory_utilization=[0.3, 0.6, 0.9])
    machine = replace(GPU, gpus=2, framework=framework)
    served = {**BASELINE, "rollout_mode": "server", "rollout_gpus": 1}
    assert space.complete(served, machine)["gpu_memory_utilization"] == 0.9
    assert space.complete({**served, "gpu_memory_utilization": 0.6}, machine)["gpu_memory_utilization"] == 0.6
    assert space.complete({**BASELINE, "rollout_mode": "colocate"}, machine)["gpu_memory_utilization"] == 0.3
    sized = space.complete({**served, "kv_cache_memory_bytes": 1 << 30}, machine)
    assert sized["gpu_memory_utilization"] == 0.3, "it has a size in place of a share, and none counts"
