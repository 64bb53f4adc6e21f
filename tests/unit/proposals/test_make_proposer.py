"""A proposer over real search spaces: what a study is given."""

from __future__ import annotations

import pytest

from autotune.domain import Configuration, Pool, Resources, Trial
from autotune.errors import UsageError
from autotune.proposals.proposer import make_proposer
from search_spaces.legality import check
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace
from tests.support import factories
from tests.support.not_none import not_none

SPACE = SearchSpace.load("cpu")
RESOURCES = factories.resources(rows_per_update=64, num_generations=8)
BASELINE = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 8, "num_generations": 8})
"""As a user writes it: most of what the space moves is left to the framework."""
ONE_GPU = factories.resources(gpus=1, device="cuda", rows_per_update=64, num_generations=8, software={})


def _study(
    sampler: str, trials: int, limit: int = 10**9, resources: Resources = RESOURCES, space: SearchSpace = SPACE
) -> list[Trial]:
    proposer = make_proposer(space, BASELINE, resources, sampler, seed=7)
    made = [factories.finished(0, configuration=BASELINE)]
    while len(made) <= trials and (proposal := proposer.propose(made, len(made))) is not None:
        number, (configuration, source) = len(made), proposal
        rows = int(configuration["micro_batch_size"])
        make = factories.finished if rows <= limit else factories.failed
        made.append(make(number, configuration=configuration, source=source))
    return made


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_proposals_are_legal_and_keep_rows_per_update(sampler: str) -> None:
    made = _study(sampler, 30)[1:]
    assert len({t.configuration for t in made}) == 30
    for trial in made:
        assert check(trial.configuration, RESOURCES, BASELINE) == ()
        rows = int(trial.configuration["micro_batch_size"]) * int(trial.configuration["gradient_accumulation_steps"])
        assert rows == 64


@pytest.mark.parametrize("sampler", ["tpe", "grey", "random", "grid"])
def test_the_headline_track_learns_as_the_baseline_does(sampler: str) -> None:
    made = _study(sampler, 30)[1:]
    whole = SPACE.complete(BASELINE, RESOURCES)
    # Told of no task, grey has no models: it makes steps, and then TPE draws.
    assert {t.source for t in made} <= {f"{sampler}/headline", "step/headline", "tpe/headline"}
    assert all(t.configuration[n] == whole[n] for t in made for n in ("precision", "master_weights", "num_generations"))


def test_a_baseline_that_leaves_much_unsaid_is_not_proposed_in_other_words() -> None:
    knobs = SPACE.as_json()["knobs"]
    learning = ("master_weights", "num_generations", "optimizer", "precision")
    few = SearchSpace.from_json({"knobs": {name: knobs[name] for name in (*learning, "micro_batch_size")}})
    made = _study("grid", 10_000, space=few)[1:]
    every = few.candidates(BASELINE, RESOURCES, same_learning=False)
    whole = few.complete(BASELINE, RESOURCES)
    assert whole in every
    assert len(every) > 50
    assert {t.configuration for t in made} == set(every) - {whole}


def test_a_baseline_that_leaves_much_unsaid_rules_out_more_than_itself() -> None:
    proposer = make_proposer(SPACE, BASELINE, RESOURCES, "tpe", seed=0)
    failed = [factories.failed(0, factories.oom(phase="update", pool=Pool.HOST), configuration=BASELINE)]
    larger = SPACE.complete(BASELINE, RESOURCES).with_(micro_batch_size=16, gradient_accumulation_steps=4)
    sentence = not_none(proposer.ruled_out(failed, larger))
    assert sentence.startswith("trial 0 (micro_batch_size 8) ran out of host memory in update")
    assert proposer.ruled_out(failed, BASELINE) is not None


def test_after_a_failed_baseline_nothing_asks_for_as_much() -> None:
    proposer = make_proposer(SPACE, BASELINE, RESOURCES, "random", seed=0)
    failed = [factories.failed(0, factories.oom(phase="update", pool=Pool.HOST), configuration=BASELINE)]
    whole = SPACE.complete(BASELINE, RESOURCES)
    made = list(failed)
    for number in range(1, 60):
        proposal = not_none(proposer.propose(made, number))
        made.append(factories.finished(number, configuration=proposal[0]))
        less = int(proposal[0]["micro_batch_size"]) < 8 or proposal[0]["master_weights"] == "bf16"
        assert less or proposal[0]["precision"] != whole["precision"], proposal[0]


def test_a_space_that_leaves_only_speed_has_one_track() -> None:
    space = SearchSpace.from_json(
        {"knobs": {"micro_batch_size": [1, 2, 4, 8], "attn_implementation": ["sdpa", "eager"]}}
    )
    proposer = make_proposer(space, BASELINE, RESOURCES, "random", seed=0)
    proposals = [proposer.propose([], number) for number in range(12)]
    assert {p[1] for p in proposals if p is not None} == {"random/headline"}


def test_an_unknown_sampler_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown sampler 'anneal'"):
        make_proposer(SPACE, BASELINE, RESOURCES, "anneal", seed=0)


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_a_knob_left_to_the_framework_is_tried_as_its_values_are(sampler: str) -> None:
    knobs = {"max_num_seqs": [UNSET, 64, 128], "gradient_checkpointing": [True, False]}
    space = SearchSpace.from_json({"knobs": knobs})
    own = BASELINE.with_(rollout_engine="vllm")
    proposer = make_proposer(space, own, ONE_GPU, sampler, seed=7)
    made = [factories.finished(0, configuration=own)]
    while (proposal := proposer.propose(made, len(made))) is not None:
        made.append(factories.finished(len(made), configuration=proposal[0], source=proposal[1]))
    every = set(space.candidates(own, ONE_GPU, same_learning=False))
    assert len(every) == 6
    assert {t.configuration for t in made[1:]} == every - {space.complete(own, ONE_GPU)}


def test_a_step_goes_from_unset_to_a_value_and_back() -> None:
    space = SearchSpace.from_json({"knobs": {"max_num_seqs": [UNSET, 64], "enforce_eager": [True, False]}})
    for own in ({}, {"max_num_seqs": 64}):
        start = BASELINE.with_(rollout_engine="vllm", enforce_eager=False, **own)
        proposer = make_proposer(space, start, ONE_GPU, "grey", seed=7)
        made = [factories.finished(0, configuration=start)]
        for number in range(1, 3):
            proposal = not_none(proposer.propose(made, number))
            made.append(factories.finished(number, configuration=proposal[0], source=proposal[1]))
        single = [set(t.configuration.difference(space.complete(start, ONE_GPU))) for t in made[1:]]
        assert {"max_num_seqs"} in single
        assert {t.source for t in made[1:]} == {"step/headline"}
