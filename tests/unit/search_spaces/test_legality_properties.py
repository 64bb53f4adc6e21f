"""What holds for every configuration: agreement with the frameworks' own checks, honest rules, true remedies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.batch import fit, rows_allowed
from search_spaces.configuration import KnobValue, ModelFacts, Resources
from search_spaces.knobs import FRAMEWORKS, KNOBS, Kind
from search_spaces.legality import RULES, Case, Reference, check
from search_spaces.legality.openr1_rules import REWARDS, unknown_rewards
from search_spaces.legality.passthrough import check_passthrough
from search_spaces.legality.rollout_rules import CPU_HEAD_SIZES
from search_spaces.space import SearchSpace
from tests.support.properties import examples

GPU: dict[str, Any] = {"device": "cuda", "compute_capability": (9, 0)}


def broken(resources: Resources, values: Mapping[str, KnobValue]) -> set[str]:
    """Names of the rules that do not hold, without looking for nearest values."""
    case = Case(values, resources, Reference.of(None, resources))
    return {rule.name for rule in RULES if rule.judge(case) is not None}


def trl(micro: int, world: int, steps: int, group: int) -> bool:
    """``GRPOConfig.__post_init__`` of TRL 1.16, the batch part."""
    return micro * world * steps % group == 0 and group >= 2


def open_r1(micro: int, world: int, steps: int, group: int) -> bool:
    """``GRPOConfig.__post_init__`` of TRL 0.18.0, the batch part."""
    rows = micro * world * steps
    return rows % micro * world == 0 and group in [n for n in range(2, rows + 1) if rows % n == 0]


def ms_swift(micro: int, world: int, steps: int, group: int) -> bool:
    """``RolloutTrainerArgumentsMixin._init_generation_batch_params`` and ``_check_teacher`` of ms-swift 4.6.0."""
    return group != 1 and steps > 0 and micro * world * steps % group == 0


def trl_vllm(pd: int, world: int, spg: int, tp: int, heads: int) -> None:
    """TRL's colocated engine and vLLM's scheduler and parallel checks."""
    if world % tp != 0:
        raise ValueError("tensor_parallel_size must divide world size")
    if heads % tp != 0:
        raise ValueError("must be divisible by tensor parallel size")
    if pd * tp * spg > 4096:
        raise ValueError("max_num_batched_tokens (4096) must be greater than or equal to max_num_seqs")


@pytest.mark.parametrize("takes", [trl, open_r1, ms_swift])
@examples(100, 300)
@given(
    micro=st.integers(1, 20),
    world=st.integers(1, 9),
    accumulation=st.integers(1, 12),
    steps=st.none() | st.integers(1, 12),
    group=st.integers(1, 20),
)
def test_batches_are_refused_exactly_when_the_framework_refuses_them(
    takes: Callable[[int, int, int, int], bool],
    micro: int,
    world: int,
    accumulation: int,
    steps: int | None,
    group: int,
) -> None:
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
        **({} if steps is None else {"steps_per_generation": steps}),
    }
    refused = broken(Resources(gpus=world, framework=takes.__name__, **GPU), values) & {"group_size", "whole_groups"}
    assert bool(refused) is not takes(micro, world, accumulation if steps is None else steps, group)


@examples(60, 200)
@given(
    pd=st.sampled_from([1, 7, 64, 512, 2048]),
    world=st.integers(1, 8),
    spg=st.sampled_from([1, 2, 3, 64]),
    tp=st.integers(1, 8),
    heads=st.sampled_from([9, 12, 14, 32]),
)
def test_colocated_engines_are_refused_exactly_when_trl_and_vllm_refuse_them(
    pd: int, world: int, spg: int, tp: int, heads: int
) -> None:
    resources = Resources(gpus=world, model=ModelFacts(attention_heads=heads), **GPU)
    values: dict[str, KnobValue] = {
        "rollout_engine": "vllm",
        "micro_batch_size": pd,
        "gradient_accumulation_steps": spg,
        "steps_per_generation": spg,
        "tensor_parallel_size": tp,
    }
    refused = broken(resources, values) & {"tensor_parallel_world", "tensor_parallel_heads", "batched_tokens"}
    try:
        trl_vllm(pd, world, spg, tp, heads)
    except ValueError:
        assert refused
    else:
        assert not refused


def some_value(name: str) -> st.SearchStrategy[KnobValue]:
    knob = KNOBS[name]
    if knob.kind is Kind.BOOL:
        return st.booleans()
    if knob.kind is Kind.CHOICE:
        return st.sampled_from(knob.choices)
    low, high = knob.bounds[0] or 0, min(knob.bounds[1] or 64, 64)
    if knob.kind is Kind.INT:
        return st.integers(int(low), max(int(low), int(high)))
    return st.floats(0.1, 0.9)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    chosen = draw(st.lists(st.sampled_from(sorted(KNOBS)), max_size=12, unique=True))
    resources = Resources(
        gpus=draw(st.sampled_from([0, 1, 4, 7])),
        nodes=draw(st.sampled_from([1, 2])),
        framework=draw(st.sampled_from(FRAMEWORKS)),
        compute_capability=draw(st.sampled_from([None, (7, 5), (8, 0), (9, 0)])),
        max_prompt_length=32,
        max_completion_length=32,
        model=ModelFacts(attention_heads=9, max_positions=64),
        software=draw(st.sampled_from([{}, {"torch": "2.13"}])),
    )
    values = {name: draw(some_value(name)) for name in chosen}
    return Case(values, resources, Reference(rows=draw(st.sampled_from([None, 64])), group=8))


@examples(60, 200)
@given(case=cases(), data=st.data())
def test_a_rule_reads_nothing_it_does_not_declare(case: Case, data: st.DataObject) -> None:
    """Enumeration asks a rule as soon as what it declares is chosen; an undeclared knob would be missed."""
    name = data.draw(st.sampled_from(sorted(KNOBS)))
    other = Case({**case.values, name: data.draw(some_value(name))}, case.resources, case.reference)
    for rule in RULES:
        if name not in rule.reads:
            assert rule.judge(case) == rule.judge(other), (rule.name, name)


@examples(40, 100)
@given(case=cases())
def test_nearest_values_mend_the_rule_they_are_given_for(case: Case) -> None:
    by_name: dict[str, list[Any]] = {}
    for rule in RULES:
        by_name.setdefault(rule.name, []).append(rule)
    for violation in check(case.values, case.resources):
        broken = [r for r in by_name[violation.rule] if r.judge(Case(case.values, case.resources)) is not None]
        for knob, value in violation.nearest:
            moved = Case(case.values, case.resources).with_knob(knob, value)
            still = [r for r in broken if r.judge(moved) is not None]
            assert len(still) < len(broken)


@examples(100, 300)
@given(
    ranks=st.integers(1, 9),
    micro=st.integers(1, 16),
    group=st.integers(2, 16),
    target=st.integers(1, 300),
    steps=st.sampled_from(["accumulation", 1, 2, 3]),
)
def test_the_accumulation_is_the_closest_legal_one(
    ranks: int, micro: int, group: int, target: int, steps: int | str
) -> None:
    """Against a search of every accumulation."""

    def legal(accumulation: int) -> bool:
        count = accumulation if steps == "accumulation" else int(steps)
        whole = ranks * micro * count % group == 0
        return whole and accumulation % count == 0 and rows_allowed(ranks * micro * accumulation, target, ranks)

    found, count = fit(ranks, micro, group, steps, target)
    every = [n for n in range(1, 2 * target + 2) if legal(n)]
    if not every:
        assert not legal(found)
        return
    best = min(abs(n * ranks * micro - target) for n in every)
    assert legal(found)
    assert abs(found * ranks * micro - target) == best
    assert count == (found if steps == "accumulation" else steps)


def verl_itself(train_prompts: int, mini_prompts: int, n: int, gpus: int, dynamic: bool) -> str:
    """``validate_config`` and ``ActorConfig.validate`` of verl 0.9.1, the batch part."""
    if dynamic:
        return ""
    if train_prompts * n % gpus != 0:
        return "V1"
    return "V4" if train_prompts < mini_prompts else ""


@examples(100, 300)
@given(
    micro=st.integers(1, 6), steps=st.integers(1, 8), accumulation=st.integers(1, 8), group=st.integers(2, 8),
    sharing=st.sampled_from([1, 2, 4]), dynamic=st.booleans(),
)  # fmt: skip
def test_batches_are_refused_where_verl_refuses_them(
    micro: int, steps: int, accumulation: int, group: int, sharing: int, dynamic: bool
) -> None:
    gpus = 4
    ranks = gpus // sharing
    refused = broken(
        Resources(gpus=gpus, framework="verl", **GPU),
        {
            "micro_batch_size": micro,
            "steps_per_generation": steps,
            "gradient_accumulation_steps": accumulation,
            "num_generations": group,
            "sequence_parallel_size": sharing,
            "dynamic_batching": dynamic,
        },
    )
    rollout, update = ranks * micro * steps, ranks * micro * accumulation
    if rollout % group or update % group:
        return  # verl has no words for it: whole_groups and verl_whole_prompts refuse it
    said = verl_itself(rollout // group, update // group, group, gpus, dynamic)
    if said == "V1":
        assert "verl_rollout_rows" in refused
    if said == "V4":
        assert "verl_rollout_covers_update" in refused
    if not said:
        assert "verl_rollout_rows" not in refused
    assert ("verl_whole_updates" in refused) == (steps > accumulation and steps % accumulation != 0)


@examples(60, 200)
@given(rows=st.integers(1, 600), micro=st.integers(1, 16), world=st.integers(1, 8))
def test_rows_that_trl_would_round_down_are_refused(rows: int, micro: int, world: int) -> None:
    """TRL 0.18 tests ``rows % micro * world``, so it lets through what it then makes fewer rows of."""
    found = check_passthrough(
        {"generation_batch_size": rows}, {"micro_batch_size": micro}, Resources(gpus=world, framework="open_r1", **GPU)
    )
    generated = rows // (micro * world) * micro * world
    assert bool(found) == (generated != rows)


def test_rewards_are_those_of_the_registry() -> None:
    assert unknown_rewards(REWARDS) == []
    assert unknown_rewards(["accuracy", "acuracy"]) == ["acuracy"]


@given(st.integers(1, 600))
def test_vllm_on_a_cpu_has_some_head_sizes(size: int) -> None:
    vllm: dict[str, KnobValue] = {"rollout_engine": "vllm"}
    model = ModelFacts(head_size=size)
    found = broken(Resources(model=model), vllm)
    assert found == (set() if size in CPU_HEAD_SIZES else {"cpu_head_size"})
    assert "cpu_head_size" not in broken(Resources(model=model), {}) | broken(
        Resources(gpus=2, model=model, **GPU), vllm
    )


@pytest.mark.parametrize("loaded", ["4 bit", "8 bit"])
@pytest.mark.parametrize("framework", ["trl", "open_r1", "ms_swift"])
def test_no_candidate_gives_vllm_what_it_cannot_take(framework: str, loaded: str) -> None:
    space = SearchSpace.from_json(
        {
            "knobs": {
                "rollout_engine": ["vllm", "transformers"],
                "rollout_mode": ["colocate", "server"],
                "rollout_gpus": [1],
                "micro_batch_size": [4, 8],
            }
        }
    )
    rows: dict[str, Any] = {
        "gpus": 2,
        "device": "cuda",
        "framework": framework,
        "rows_per_update": 16,
        "num_generations": 8,
    }
    resources = Resources(quantized=loaded, **rows)
    baseline = space.complete(
        {"micro_batch_size": 8, "num_generations": 8, "rollout_engine": "transformers"}, resources
    )
    found = space.candidates(baseline, resources, same_learning=True)
    assert found
    assert all(check(one, resources, baseline) == () for one in found)
    counted = space.count(baseline, resources, same_learning=True)
    assert counted.legal == len(found)
    plain = space.count(baseline, Resources(**rows), same_learning=True)
    takes_all = (framework, loaded) == ("ms_swift", "4 bit")
    assert (plain.legal == counted.legal) if takes_all else (plain.legal > counted.legal)
