"""The table's design: all over the space, legal, the same each time, with the defaults again and again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, groupby

import pytest

from autotune.domain import Configuration, Resources
from autotune.proposals.sweep import levels, searched
from benchmarks.gpu import design
from search_spaces.configuration import ModelFacts
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_key
from search_spaces.legality import check
from search_spaces.space import SearchSpace

GPU = Resources(
    gpus=1,
    device="cuda",
    compute_capability=(9, 0),
    rows_per_update=64,
    num_generations=8,
    max_prompt_length=256,
    max_completion_length=512,
    model=ModelFacts(attention_heads=14, max_positions=32768),
)
BARE = replace(GPU, software={"torch": "2.13.0", "trl": "1.16.0"})
TRIALS = 72


def space() -> SearchSpace:
    return SearchSpace.load("single-gpu")


def baseline(resources: Resources) -> Configuration:
    own = {"micro_batch_size": 8, "gradient_accumulation_steps": 8, "num_generations": 8}
    return space().complete({**own, "rollout_engine": "transformers"}, resources)


def planned(resources: Resources, seed: int = 0) -> tuple[design.Entry, ...]:
    return design.plan(space(), baseline(resources), resources, TRIALS, seed)


@pytest.fixture(scope="module")
def whole() -> tuple[design.Entry, ...]:
    return planned(GPU)


def test_every_trial_is_legal_and_another(whole: tuple[design.Entry, ...]) -> None:
    chosen = [e.configuration for e in whole if e.role == "design"]
    assert len(whole) == TRIALS
    assert len(set(chosen)) == len(chosen) > 50
    assert baseline(GPU) not in chosen
    assert all(check(c, GPU, baseline(GPU)) == () for c in chosen)


def test_the_defaults_come_first_and_again_and_again(whole: tuple[design.Entry, ...]) -> None:
    """Without them a machine that grows slower would look like configurations that are worse."""
    places = [n for n, e in enumerate(whole) if e.role == "baseline"]
    assert places == list(range(0, TRIALS, design.BASELINE_EVERY))
    assert {whole[n].configuration for n in places} == {baseline(GPU)}
    assert whole[1].role == "competent"
    assert whole[1].configuration["rollout_engine"] == "vllm"
    changed = set(whole[1].configuration.difference(baseline(GPU)))
    assert changed <= {"rollout_engine", "max_num_seqs"}, "nothing but the engine, whose unset knobs are its own"


def test_each_value_of_each_knob_is_tried(whole: tuple[design.Entry, ...]) -> None:
    chosen = [e.configuration for e in whole if e.role == "design"]
    pool = space().candidates(baseline(GPU), GPU, same_learning=False, limit=design.POOL)
    for name in searched(pool):
        there = {c.get(name) for c in pool}
        missing = there - {c.get(name) for c in chosen}
        assert not missing or len(there) > 12, (name, missing)


def test_values_are_tried_equally_often_as_far_as_the_space_lets_them(whole: tuple[design.Entry, ...]) -> None:
    chosen = [e.configuration for e in whole if e.role == "design"]
    for name in ("gradient_checkpointing", "logprob_token_chunk", "optimizer", "attn_implementation"):
        counts = Counter(c[name] for c in chosen)
        assert max(counts.values()) <= 1.5 * min(counts.values()), (name, counts)
    assert min(Counter(c["rollout_engine"] for c in chosen).values()) >= 8


def apart(chosen: list[Configuration], names: list[str]) -> float:
    """Mean distance of each one to its nearest, in knobs."""
    table = levels(chosen, names)
    nearest = [min(int((a != b).sum()) for k, b in enumerate(table) if k != n) for n, a in enumerate(table)]
    return sum(nearest) / len(nearest)


def test_trials_lie_further_apart_than_a_random_draws(whole: tuple[design.Entry, ...]) -> None:
    pool = space().candidates(baseline(GPU), GPU, same_learning=False, limit=design.POOL)
    names = searched(pool)
    chosen = [e.configuration for e in whole if e.role == "design"]
    drawn = list(space().candidates(baseline(GPU), GPU, same_learning=False, limit=len(chosen), seed=5))
    assert apart(chosen, names) > apart(drawn, names)
    table = levels(chosen, names)
    assert min(int((a != b).sum()) for a, b in combinations(table, 2)) >= 3


def test_a_beginning_is_spread_out_too(whole: tuple[design.Entry, ...]) -> None:
    """A run that is ended early has seen the whole space coarsely, not a corner of it."""
    first = [e.configuration for e in whole[:16] if e.role == "design"]
    assert len({c["micro_batch_size"] for c in first}) >= 5
    assert {c["rollout_engine"] for c in first} == {"vllm", "transformers"}
    assert len({c["gpu_memory_utilization"] for c in first}) >= 4


def test_the_same_arguments_give_the_same_plan(whole: tuple[design.Entry, ...]) -> None:
    """A slice that goes on must not begin another table."""
    assert planned(GPU) == whole
    assert planned(GPU, seed=1) != whole


def test_without_vllm_the_plan_has_no_competent_default_and_says_what_is_left_out() -> None:
    entries = planned(BARE)
    assert {e.configuration["rollout_engine"] for e in entries} == {"transformers"}
    assert all(e.role != "competent" for e in entries)
    pool = space().candidates(baseline(BARE), BARE, same_learning=False, limit=design.POOL)
    said = design.left_out(space(), baseline(BARE), BARE, pool)
    text = "\n".join(said)
    assert "rollout_engine vllm: rollout_engine vllm needs the package vllm" in text
    assert "precision fp8: precision fp8 needs the package torchao" in text
    assert "attn_implementation flash_attention_2" in text
    (resting,) = [line for line in said if line.startswith("with that rest")]
    assert "gpu_memory_utilization" in resting
    assert "sleep_level" in resting
    assert "nearest legal" not in text


def test_nothing_is_said_to_be_left_out_where_all_is_there() -> None:
    pool = space().candidates(baseline(GPU), GPU, same_learning=False, limit=design.POOL)
    assert design.left_out(space(), baseline(GPU), GPU, pool) == []


def test_a_confirmation_is_interleaved_and_turned_round() -> None:
    first, second = baseline(GPU), baseline(GPU).with_(micro_batch_size=4)
    entries = design.confirmation([first, second, first])
    assert [(e.pair, e.configuration) for e in entries] == [
        *((0, first), (0, second)),
        *((1, second), (1, first)),
        *((2, first), (2, second)),
    ]
    assert design.confirmation([first]) == ()
    assert design.confirmation([first, second], 0) == ()


def test_a_space_smaller_than_the_plan_is_taken_whole() -> None:
    small = SearchSpace.from_json({"knobs": {"gradient_checkpointing": [True, False], "micro_batch_size": [4, 8]}})
    own = small.complete({"micro_batch_size": 8, "gradient_accumulation_steps": 8, "num_generations": 8}, GPU)
    entries = design.plan(small, own, GPU, TRIALS, 0)
    assert len({e.configuration for e in entries}) == 4 + 1, "three others, the defaults and the competent one"


def test_trials_that_can_share_a_process_stand_in_a_row() -> None:
    """As many as were asked for, all legal, none twice, and a baseline never parts them."""
    entries = design.plan(space(), baseline(GPU), GPU, TRIALS, 0, alike=6)
    assert len(entries) == TRIALS
    rows = [list(group) for _, group in groupby(entries, lambda e: restart_key(e.configuration, Restart.NONE))]
    of_design = [group for group in rows if group[0].role == "design"]
    assert [len(group) for group in of_design[:-1]] == [6] * (len(of_design) - 1), "the last one may be cut off"
    chosen = [e.configuration for e in entries if e.role == "design"]
    assert len(set(chosen)) == len(chosen)
    assert all(check(c, GPU, baseline(GPU)) == () for c in chosen)
    assert len({restart_key(group[0].configuration, Restart.NONE) for group in of_design}) == len(of_design) >= 8
    assert entries[0].role == "baseline"
    assert sum(e.role == "baseline" for e in entries) >= TRIALS // (design.BASELINE_EVERY + 6)
