"""A sweep's rows: each once, nested, grouped by what one process can run, the same after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import SWEEP, Configuration, FailureReason, Resources, Trial
from autotune.errors import UsageError
from autotune.proposals.samplers import named_sampler
from autotune.proposals.sweep import BROKEN, SweepProposer, ordered
from autotune.wiring import proposer_for
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RESTART, preload_key, restart_between, restart_key
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.properties import examples

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
            "attn_implementation": ["sdpa", "eager"],
            "logprob_rows": [1, 2, 4],
        }
    }
)


GPU = f.resources(gpus=1, device="cuda", device_memory=80 * f.GIB)


def proposer(
    rows: int | None = None, seed: int = 0, *, same_learning: bool = False, resources: Resources = GPU
) -> SweepProposer:
    return SweepProposer(SPACE, f.configuration(), resources, rows=rows, same_learning=same_learning, seed=seed)


def restarts(order: Sequence[Configuration]) -> int:
    return sum(restart_between(a, b) > Restart.NONE for a, b in pairwise(order))


def run(
    sweep: SweepProposer, history: Sequence[Trial] = (), limit: int | None = None
) -> tuple[list[Trial], list[Configuration]]:
    """Goes on until nothing is proposed, or ``limit`` rows are there."""
    trials = list(history) or [f.finished(0)]
    found: list[Configuration] = []
    while (limit is None or len(found) < limit) and (step := sweep.propose(trials, len(trials))) is not None:
        assert step[1] == SWEEP
        found.append(step[0])
        trials.append(f.finished(len(trials), configuration=step[0]))
    return trials, found


def test_every_legal_combination_is_a_row_once() -> None:
    sweep = proposer()
    _, found = run(sweep)
    complete = SPACE.complete(f.configuration(), GPU)
    assert len(found) == len(set(found))
    assert {*found, complete} == set(SPACE.candidates(f.configuration(), GPU, same_learning=False))


def test_as_few_restarts_as_there_are_processes() -> None:
    sweep = proposer()
    keys = {restart_key(c, Restart.NONE) for c in sweep.legal}
    assert len(keys) == 4
    baseline = SPACE.complete(f.configuration(), GPU)
    assert restarts([baseline, *sweep.planned]) == len(keys) - 1


@given(st.integers(2, 60), st.integers(0, 5))
@settings(max_examples=8, deadline=None)
def test_a_subset_spares_restarts_too_and_fewer_rows_are_among_more(rows: int, seed: int) -> None:
    few, more = proposer(rows, seed), proposer(rows + 7, seed)
    assert len(few.planned) == rows - 1
    assert set(few.planned) <= set(more.planned)
    baseline = SPACE.complete(f.configuration(), GPU)
    whole = [baseline, *few.planned]
    assert restarts(whole) == len({restart_key(c, Restart.NONE) for c in whole}) - 1


def test_a_subset_has_every_value_of_every_knob() -> None:
    rows = proposer(20).planned
    for name, values in SPACE.values.items():
        assert {c[name] for c in rows} == set(values)


@pytest.mark.parametrize("killed_after", [0, 17])
def test_after_a_kill_it_goes_on_as_if_nothing_had_been(killed_after: int) -> None:
    _, whole = run(proposer(30))
    trials, before = run(proposer(30), limit=killed_after)
    _, after = run(proposer(30), trials)
    assert before + after == whole


def test_a_row_that_failed_is_there_and_one_the_budget_cut_off_is_not() -> None:
    sweep = proposer(10)
    row = sweep.planned[0]
    failed = [f.finished(0), f.failed(1, configuration=row)]
    cut = [f.finished(0), f.failed(1, f.failure(FailureReason.CANCELLED), configuration=row)]
    assert sweep.propose(failed, 2) == (sweep.planned[1], SWEEP)
    assert sweep.propose(cut, 2) == (row, SWEEP)
    assert (sweep.left(failed), sweep.left(cut)) == (8, 9)


def test_what_the_machine_breaks_again_and_again_does_not_hold_the_sweep_up() -> None:
    sweep = proposer(10)
    row = sweep.planned[0]
    broken = [f.failed(n, f.failure(FailureReason.INFRA), configuration=row) for n in range(1, BROKEN + 1)]
    assert sweep.propose([f.finished(0), *broken[:-1]], BROKEN) == (row, SWEEP)
    assert sweep.propose([f.finished(0), *broken], BROKEN + 1) == (sweep.planned[1], SWEEP)


def test_no_oom_keeps_a_row_from_being_recorded() -> None:
    sweep = proposer()
    small = next(c for c in sweep.planned if c["micro_batch_size"] == 1)
    history = [f.finished(0), f.failed(1, configuration=small)]
    assert all(sweep.ruled_out(history, c) is None for c in sweep.planned)
    assert sweep.count_ruled_out(history) == 0


def test_only_rows_that_learn_as_the_baseline_does() -> None:
    rows = proposer(same_learning=True).planned
    assert rows
    assert {c["precision"] for c in rows} == {"fp32"}


VALUES = st.sampled_from([1, 2, 4, "eager", "sdpa", True, False, "fp32", "bf16"])
CONFIGURATIONS = st.dictionaries(
    st.sampled_from([*sorted(RESTART)[:12], "micro_batch_size", "precision", "no_such_knob"]), VALUES
).map(Configuration)


@given(CONFIGURATIONS, CONFIGURATIONS, st.sampled_from(Restart))
@examples(25, 60)
def test_equal_keys_say_that_no_costlier_restart_lies_between(
    here: Configuration, there: Configuration, above: Restart
) -> None:
    same = restart_key(here, above) == restart_key(there, above)
    assert same == (restart_between(here, there) <= above)


@given(st.lists(CONFIGURATIONS, unique=True, max_size=12), CONFIGURATIONS)
@settings(max_examples=30, deadline=None)
def test_ordering_keeps_every_configuration_and_the_order_within_a_process(
    given_order: list[Configuration], first: Configuration
) -> None:
    found = ordered(given_order, first, "trl", "cuda")
    assert sorted(found, key=repr) == sorted(given_order, key=repr)
    for key in {restart_key(c, Restart.NONE) for c in given_order}:
        own = [c for c in given_order if restart_key(c, Restart.NONE) == key]
        assert [c for c in found if restart_key(c, Restart.NONE) == key] == own


ON_CPU = SearchSpace.from_json(
    {
        "knobs": {
            "rollout_engine": ["transformers", "vllm"],
            "host_allocator": ["default", "keep"],
            "precision": ["fp32", "bf16"],
            "attn_implementation": ["sdpa", "eager"],
            "micro_batch_size": [1, 2, 4, 8],
        }
    }
)


def test_on_a_cpu_each_preloaded_parent_is_needed_once_and_nothing_else_is_in_blocks() -> None:
    """Rows in blocks of one precision would show the hour they were measured in as the precision's effect."""
    resources = f.resources(software={})
    baseline = ON_CPU.complete(f.configuration(), resources)
    for number in (None, 33):
        rows = SweepProposer(ON_CPU, baseline, resources, rows=number, same_learning=False, seed=0).planned
        parents = [preload_key(c) for c in (baseline, *rows)]
        assert sum(a != b for a, b in pairwise(parents)) == len(set(parents)) - 1 == 3
        for name in ("precision", "attn_implementation"):
            assert sum(a[name] != b[name] for a, b in pairwise(rows)) > len(rows) / 4


def test_a_stored_sweep_has_its_proposer_and_a_search_cannot_ask_for_it() -> None:
    spec = f.study_spec(sampler=SWEEP, space=SPACE.as_json())
    assert isinstance(proposer_for(spec), SweepProposer)
    with pytest.raises(UsageError, match="unknown sampler 'sweep'"):
        named_sampler(SWEEP)
