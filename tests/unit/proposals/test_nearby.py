"""A space too large to be listed is climbed one knob at a time all the same."""

from __future__ import annotations

import pytest

from autotune.domain import Configuration, Pool, Resources, Trial
from autotune.proposals.neighbours import LISTED, in_one_process, neighbourhoods
from autotune.proposals.proposer import make_proposer
from search_spaces.configuration import ModelFacts
from search_spaces.knobs import restart_between
from search_spaces.knobs.model import Restart
from search_spaces.legality import check
from search_spaces.space import SearchSpace
from tests.support import factories

SPACE = SearchSpace.load("single-gpu")
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
OWN = {"micro_batch_size": 8, "gradient_accumulation_steps": 8, "num_generations": 8}
BASELINE = SPACE.complete({**OWN, "rollout_engine": "transformers"}, GPU)
ENGINES = {"max_num_seqs"}
FOLLOWING = {"gradient_accumulation_steps", "steps_per_generation"}
"""These follow from the micro-batch."""


def seconds(configuration: Configuration) -> float | None:
    """Of a cycle on an invented GPU; ``None`` if it runs out of memory there."""
    vllm = configuration["rollout_engine"] == "vllm"
    if vllm and float(configuration["gpu_memory_utilization"]) > 0.6:
        return None
    generate, update = (3.0 if vllm else 9.0), 4.0
    update *= 0.8 if not configuration["gradient_checkpointing"] else 1.0
    update *= 0.7 if int(configuration["micro_batch_size"]) >= 16 else 1.0
    return generate + update * (1.3 if configuration["attn_implementation"] == "eager" else 1.0)


def study(trials: int, resources: Resources = GPU) -> list[Trial]:
    proposer = make_proposer(SPACE, BASELINE, resources, "grey", seed=3)
    made = [factories.finished(0, cycle_seconds=13.0, configuration=BASELINE)]
    while len(made) < trials and (proposal := proposer.propose(made, len(made))) is not None:
        configuration, source = proposal
        took, number = seconds(configuration), len(made)
        failed = factories.failed(number, factories.oom(phase="update", pool=Pool.DEVICE))
        ended = failed if took is None else factories.finished(number, cycle_seconds=took)
        made.append(ended.with_(configuration=configuration, source=source))
    return made


@pytest.fixture(scope="module")
def made() -> list[Trial]:
    return study(16)


def test_the_space_is_larger_than_what_is_listed() -> None:
    assert SPACE.explain(BASELINE, GPU).legal > LISTED


def test_steps_change_one_knob_of_the_best_so_far(made: list[Trial]) -> None:
    assert len(made) >= 8
    for trial in made[1:]:
        assert trial.source == "step/headline"
        before = [t for t in made[: trial.number] if t.outcome and t.outcome.ok]
        steps = [set(trial.configuration.difference(t.configuration)) - FOLLOWING - ENGINES for t in before]
        assert any(len(step) <= 1 for step in steps), trial.configuration


def test_steps_find_what_is_faster(made: list[Trial]) -> None:
    took = [seconds(t.configuration) for t in made]
    assert min(s for s in took if s is not None) == pytest.approx(3.0 + 4.0 * 0.8 * 0.7)


def test_all_is_legal_and_nothing_twice(made: list[Trial]) -> None:
    assert len({t.configuration for t in made}) == len(made)
    assert all(check(t.configuration, GPU, BASELINE) == () for t in made)


def test_a_study_goes_on_as_if_it_had_not_been_interrupted(made: list[Trial]) -> None:
    """A proposer made anew knows of no neighbour but by the history."""
    proposer = make_proposer(SPACE, BASELINE, GPU, "grey", seed=3)
    for number in (4, 7):
        assert proposer.propose(made[:number], number) == (made[number].configuration, made[number].source)


def test_neighbours_are_legal_and_learn_as_asked() -> None:
    nearby = neighbourhoods(SPACE, BASELINE, GPU)
    same, all_of_them = (nearby(BASELINE, same_learning=flag) for flag in (True, False))
    assert set(same) < set(all_of_them)
    assert len(set(all_of_them)) == len(all_of_them)
    assert all(check(c, GPU, BASELINE) == () for c in all_of_them)
    assert all(c["precision"] == BASELINE["precision"] for c in same)
    assert {c["micro_batch_size"] for c in same} == {1, 2, 4, 8, 16, 32, 64}


def test_a_small_space_is_listed_and_asks_nobody() -> None:
    cpu = SearchSpace.load("cpu")
    resources = factories.resources(rows_per_update=64, num_generations=8)
    baseline = cpu.complete(OWN, resources)
    assert cpu.explain(baseline, resources).legal < LISTED
    proposer = make_proposer(cpu, baseline, resources, "grey", seed=3)
    assert proposer.propose([factories.finished(0, configuration=baseline)], 1) is not None


def test_a_baseline_that_leaves_a_searched_knob_to_the_engine_is_climbed_from() -> None:
    """vLLM beside TRL chooses ``max_num_seqs`` itself, so a baseline of today mostly has none."""
    whole = SPACE.complete({**OWN, "rollout_engine": "vllm"}, GPU)
    assert "max_num_seqs" not in whole
    proposer = make_proposer(SPACE, whole, GPU, "grey", seed=3)
    trials = [factories.finished(0, configuration=whole)]
    for number in range(1, 8):
        proposal = proposer.propose(trials, number)
        assert proposal is not None
        configuration, source = proposal
        assert source.startswith("step/")
        changed = set(configuration.difference(whole)) - FOLLOWING
        assert len(changed - ({"max_num_seqs"} if "rollout_engine" in changed else set())) == 1
        trials.append(factories.finished(number, cycle_seconds=10.5, configuration=configuration, source=source))


def test_what_one_process_can_run_needs_no_restart() -> None:
    vllm = BASELINE.with_(rollout_engine="vllm")
    found = in_one_process(SPACE, BASELINE, GPU)(vllm)
    assert len(found) > 100
    assert all(restart_between(vllm, c) is Restart.NONE for c in found)
    assert all(check(c, GPU, BASELINE) == () for c in found)
