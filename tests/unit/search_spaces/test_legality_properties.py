"""What holds for every configuration: agreement with the frameworks' own checks, honest rules, true remedies."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from search_spaces.batch import fit, rows_allowed
from search_spaces.configuration import KnobValue, ModelFacts, Resources
from search_spaces.knobs import FRAMEWORKS, KNOBS, Kind
from search_spaces.legality import RULES, Case, Reference, check
from tests.support.properties import examples

GPU: dict[str, Any] = {"device": "cuda", "compute_capability": (9, 0)}


def broken(resources: Resources, values: dict[str, KnobValue]) -> set[str]:
    """Names of the rules that do not hold, without looking for nearest values."""
    case = Case(values, resources, Reference.of(None, resources))
    return {rule.name for rule in RULES if rule.judge(case) is not None}


def trl_post_init(pd: int, world: int, accumulation: int, spg: int | None, group: int) -> None:
    """``GRPOConfig.__post_init__`` of TRL 1.16, the batch part."""
    if spg is None:
        spg = accumulation
    generation_batch_size = pd * world * spg
    if generation_batch_size % (pd * world) != 0:
        raise ValueError("must be divisible by the global batch size")
    if generation_batch_size % group != 0:
        raise ValueError("must be divisible by num_generations")
    if group < 2:
        raise ValueError("GRPO requires at least 2 generations per prompt")


def trl_vllm(pd: int, world: int, spg: int, tp: int, heads: int) -> None:
    """TRL's colocated engine and vLLM's scheduler and parallel checks."""
    if world % tp != 0:
        raise ValueError("tensor_parallel_size must divide world size")
    if heads % tp != 0:
        raise ValueError("must be divisible by tensor parallel size")
    if pd * tp * spg > 4096:
        raise ValueError("max_num_batched_tokens (4096) must be greater than or equal to max_num_seqs")


@examples(100, 300)
@given(
    pd=st.integers(1, 20),
    world=st.integers(1, 9),
    accumulation=st.integers(1, 12),
    spg=st.none() | st.integers(1, 12),
    group=st.integers(1, 20),
)
def test_batches_are_refused_exactly_when_trl_refuses_them(
    pd: int, world: int, accumulation: int, spg: int | None, group: int
) -> None:
    values: dict[str, KnobValue] = {
        "micro_batch_size": pd,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
    }
    if spg is not None:
        values["steps_per_generation"] = spg
    refused = broken(Resources(gpus=world, **GPU), values) & {"group_size", "whole_groups"}
    try:
        trl_post_init(pd, world, accumulation, spg, group)
    except ValueError:
        assert refused
    else:
        assert not refused


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
