"""The replay foretells only what it has not seen, and its table says what it compared."""

from __future__ import annotations

import random

import pytest

from autotune.domain import Study
from benchmarks import time_model
from tests.support import factories as f
from tests.support import timed_machine as made

SPACE = made.configurations()


def study() -> Study:
    spec = f.study_spec(resources=f.resources(model=made.MODEL))
    return f.study(spec=spec, lengths=f.LENGTHS)


def test_the_model_is_ahead_of_prior_and_neighbour_on_a_made_up_machine() -> None:
    some = random.Random(4).sample(SPACE, 30)
    errors: dict[int, time_model.Errors] = {}
    assert time_model.replay(study(), made.trials(some), None, errors) == 30
    assert sorted(errors) == [0, 1, 2, 3, 5, 8, 12, 20]
    for first, one in errors.items():
        assert len(one.inside) == len(one.found["model", "cycle"]) == 30 - first
        assert ("nearest", "cycle") in one.found or first == 0
    late = errors[20]
    prior, model, near = (float(late.median(arm, "cycle")) for arm in time_model.ARMS)
    assert model < near
    assert model < prior
    lines = time_model.table(errors)
    assert len(lines) == 2 + len(errors)
    assert len({line.count("|") for line in lines}) == 1, "every row has every column"


def test_what_was_seen_is_not_foretold() -> None:
    one = SPACE[0]
    trials = made.trials([one, one, SPACE[5], one])
    errors: dict[int, time_model.Errors] = {}
    time_model.replay(study(), trials, None, errors)
    assert {first: len(one.inside) for first, one in errors.items()} == {0: 4, 1: 1, 2: 1}


def test_the_nearest_neighbour_has_fewest_other_knobs_and_is_the_latest_of_equals() -> None:
    base = f.configuration()
    known = [f.finished(n, configuration=c) for n, c in enumerate(
        [base.with_(micro_batch_size=1, precision="bf16"), base.with_(micro_batch_size=4), base.with_(precision="bf16")]
    )]  # fmt: skip
    assert time_model.nearest(f.finished(9, configuration=base), known) == 2
    assert time_model.nearest(f.finished(9, configuration=base.with_(micro_batch_size=4)), known) == 1


def test_a_phase_that_did_not_occur_is_not_compared() -> None:
    errors = time_model.Errors()
    errors.add("model", "logprob", 0.0, 2.0)
    errors.add("model", "logprob", 2.0, 0.0)
    assert errors.median("model", "logprob") == "-"
    errors.add("model", "logprob", 2.0, 1.0)
    assert float(errors.median("model", "logprob")) == pytest.approx(0.693)


def test_failed_trials_are_not_replayed() -> None:
    errors: dict[int, time_model.Errors] = {}
    failed = f.failed(1, configuration=SPACE[1])
    assert time_model.replay(study(), [*made.trials([SPACE[0]]), failed], None, errors) == 1
    assert {first: len(one.inside) for first, one in errors.items()} == {0: 1}
