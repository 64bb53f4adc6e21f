"""Every arm that can run here: only rows, none twice, the same again for the same seed, told of failures."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import Configuration, Trial
from autotune.errors import UsageError
from autotune.proposals.forecasts import PeakForecast, PeakModel, Task, TimeForecast, TimeModel
from benchmarks.search.__main__ import chosen
from benchmarks.search.arms import ARMS, PRIOR_FIRST, Arm, best_peer
from benchmarks.search.models import Known, models_of, passing, prior_order
from benchmarks.search.ours import with_wrong_prior
from benchmarks.search.replay import Course, Session, replay
from benchmarks.search.running import searched
from benchmarks.search.world import World, holds, is_oom
from tests.support.synthetic_table import KNOBS, table

pytestmark = pytest.mark.full

FEW = {**KNOBS, "logprob_rows": (1, 2), "logprob_token_chunk": (256,)}


class Times:
    """Expects less of a larger micro-batch."""

    trusted = True

    def fitted(self, task: Task, trials: Sequence[Trial]) -> TimeModel:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        logs = np.array([-float(c["micro_batch_size"]) for c in configurations])
        return TimeForecast(logs, np.ones_like(logs), {}, np.zeros_like(logs))


class Peaks:
    """Sure that the two largest micro-batches do not fit."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> PeakModel:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        fits = np.array([float(int(c["micro_batch_size"]) <= 2) for c in configurations])
        return PeakForecast(fits, fits, fits)


@pytest.fixture(scope="module")
def world() -> World:
    return World(table(knobs=FEW, top=5))


MODELS = Known(times=Times())
RUNNING = [name for name, arm in ARMS.items() if not arm.lacks(MODELS) and not name.startswith("grey")]


def run(world: World, name: str, seed: int, most: int = 13, known: Known = MODELS) -> Course:
    arm = ARMS[name]
    return replay(
        world, name, arm.begin(world, known, seed), seed, most=most, memory_filter=arm.memory_filter(world, known)
    )


@pytest.mark.parametrize("name", RUNNING)
def test_an_arm_proposes_rows_once_and_the_same_again(world: World, name: str) -> None:
    course = run(world, name, 1)
    assert len(course.rows) == len(set(course.rows)) == 13
    assert world.baseline not in course.rows
    assert all(0 <= row < len(world.configurations) for row in course.rows)
    assert run(world, name, 1) == course


@pytest.mark.parametrize("name", ["random", "start"])
def test_another_seed_is_another_search(world: World, name: str) -> None:
    assert len({run(world, name, seed).rows for seed in range(2)}) > 1


@pytest.mark.parametrize("name", ["random", "grid", "random+filter"])
def test_until_the_rows_are_used_up(world: World, name: str) -> None:
    course = run(world, name, 0, most=1000)
    assert len(course.rows) == len(world.configurations) - 1


def test_the_prior_is_of_the_device_the_table_was_measured_on(world: World) -> None:
    rates = {"fp32": 1e11, "bf16": 2e11}
    forecasts = []
    for times in (1.0, 10.0):
        probe = {"device": "cpu", "bandwidth": 1e10 * times, "flops": {kind: r * times for kind, r in rates.items()}}
        model = models_of(world.task, probe).times
        assert model is not None
        forecasts.append(model.forecast(world.configurations).log_seconds)
    assert np.all(forecasts[0] > forecasts[1])


def test_a_wrong_prior_is_the_opposite_of_the_right_one(world: World) -> None:
    known = models_of(world.task)
    assert known.times is not None
    wrong = with_wrong_prior(known.times)
    right, other = (m.forecast(world.configurations).phases["update"] for m in (known.times, wrong))
    assert len(np.unique(right)) > 3
    assert np.allclose(right * other, 1.0)
    assert len(set(run(world, "grey-wrong", 0, most=8, known=known).rows)) == 8
    with pytest.raises(TypeError, match="Times has no prior"):
        with_wrong_prior(Times())


def test_the_grid_goes_as_nested_loops_do(world: World) -> None:
    points = world.places.places(np.array(run(world, "grid", 0).rows)).tolist()
    assert points == sorted(points)
    assert run(world, "grid", 0).rows == run(world, "grid", 5).rows


@pytest.mark.parametrize("name", ["random", "grid"])
def test_the_filter_keeps_an_arm_from_what_an_oom_rules_out(world: World, name: str) -> None:
    native = sum(run(world, name, seed, 40).first_ooms() for seed in range(3))
    filtered = sum(run(world, name + "+filter", seed, 40).first_ooms() for seed in range(3))
    assert filtered < native


def test_what_the_filter_lets_through_after_an_oom_fits(world: World) -> None:
    failing = [i for i, row in enumerate(world.table.rows) if is_oom(row.trial)]
    history = [world.draw(world.baseline, 0, 0), *(world.draw(row, n, 0) for n, row in enumerate(failing, start=1))]
    mask = passing(world, Known(), history)
    assert not any(mask[row] for row in failing)
    assert all(mask[i] for i, row in enumerate(world.table.rows) if holds(row))
    assert passing(world, Known(), history[:1]).all()


def test_the_memory_model_is_part_of_the_filter(world: World) -> None:
    mask = passing(world, Known(peaks=Peaks()), ())
    assert {world.configurations[i]["micro_batch_size"] for i in np.flatnonzero(mask)} == {1, 2}


def test_the_prior_begins_in_its_order(world: World) -> None:
    order = [row for row in prior_order(world, MODELS) or () if row != world.baseline]
    course = run(world, "prior+filter", 0, most=5)
    largest = max(int(c["micro_batch_size"]) for c in world.configurations)
    assert world.configurations[course.rows[0]]["micro_batch_size"] == largest
    assert [r for r in order if r in course.rows] == list(course.rows)
    begun = run(world, "tpe+filter+prior", 0, most=PRIOR_FIRST + 5)
    assert begun.rows[:PRIOR_FIRST] == run(world, "prior+filter", 0, most=PRIOR_FIRST).rows
    assert begun.rows != run(world, "prior+filter", 0, most=PRIOR_FIRST + 5).rows


def test_an_arm_that_cannot_run_is_named_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.search.arms.there", lambda module: module not in ("smac", "xgboost"))
    running, left_out = chosen("random,smac,deepspeed+filter,prior+filter", [Known()])
    assert [arm.name for arm in running] == ["random"]
    assert left_out == [
        "left out: smac: needs smac (`make env-search`)",
        "left out: deepspeed+filter: needs xgboost (`make env-search`)",
        "left out: prior+filter: needs a time model, of which this installation has none",
    ]
    with pytest.raises(UsageError, match="left out: smac"):
        chosen("smac", [Known()])


def test_every_peer_is_there_native_and_with_the_filter() -> None:
    peers = {name for name, arm in ARMS.items() if not arm.is_ours and "+" not in name}
    assert peers == {"random", "grid", "tpe", "gp", "cmaes", "deepspeed", "smac", "ax"}
    assert all(f"{name}+filter" in ARMS and ARMS[f"{name}+filter"].filtered for name in peers)
    assert {name for name in ARMS if name.endswith("+prior")} == {"tpe+filter+prior", "gp+filter+prior"}


def test_the_best_peer_is_one_with_our_filter() -> None:
    found = {"tpe": [1.0, 1.0], "tpe+filter": [9.0, 9.0], "grey": [2.0, 2.0], "random+filter": [9.0, 8.0]}
    assert best_peer(found) == "random+filter"
    assert best_peer({"tpe": [1.0], "prior+filter": [1.0]}) is None


def test_rows_with_knobs_others_do_not_have_are_told_apart() -> None:
    made = table(knobs=FEW, top=5)
    here = made.header.baseline["attn_implementation"]
    kept = []
    for row in made.rows:
        own = row.configuration
        if own["attn_implementation"] == here:
            kept.append(row)
        elif own["logprob_rows"] == 1:
            own = Configuration({name: value for name, value in own.items() if name != "logprob_rows"})
            kept.append(replace(row, trial=row.trial.with_(configuration=own), repeats=()))
    world = World(replace(made, rows=tuple(kept)))
    points = world.places.places(np.arange(len(kept)))
    assert len(np.unique(points, axis=0)) == len(kept)
    assert {d.name for d in world.places.dimensions} == {n for n, v in FEW.items() if len(v) > 1}
    for name in ("tpe", "random", "start"):
        assert len(set(run(world, name, 0).rows)) == 13


@pytest.mark.parametrize("name", ["deepspeed", "smac", "ax"])
def test_a_peer_with_packages_of_its_own_runs_where_they_are(world: World, name: str) -> None:
    for module in ARMS[name].needs:
        pytest.importorskip(module, reason=f"{name} needs {module}: make env-search")
    course = run(world, name, 0, most=14)
    assert len(set(course.rows)) == 14
    assert len(set(run(world, f"{name}+filter", 0, most=6).rows)) == 6


def test_a_peer_whose_package_fails_loses_its_own_line_only(world: World) -> None:
    def breaks(*_: object) -> Session:
        raise ValueError("inside")

    given = Namespace(seeds=1, trials=3)
    courses, broken = searched([world], [Known()], [Arm("smac", breaks, ("smac",)), ARMS["random"]], given)
    assert [course.arm for course in courses] == ["random"]
    assert broken == ["broke off: smac on synthetic: ValueError: inside"]
    with pytest.raises(ValueError, match="inside"):
        searched([world], [Known()], [Arm("start", breaks, is_ours=True)], given)
