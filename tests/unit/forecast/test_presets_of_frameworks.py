"""The preset of a machine serves every framework: in a study, in a plan and in a check of the space."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli.commands.space import app
from autotune.errors import UsageError
from autotune.forecast.answer import Machine
from autotune.forecast.architecture import architecture
from autotune.forecast.gpus import gpu_named
from autotune.forecast.question import PlanRequest, Question
from autotune.frameworks import framework_named
from autotune.specification import build
from autotune.specification.request import ResolvedRequest, gpu_size
from search_spaces import legality
from search_spaces.batch import batch_of
from search_spaces.configuration import Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import FRAMEWORKS
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for, preset_names
from tests.support.imports import of
from tests.support.published_models import PUBLISHED

MODEL = architecture(PUBLISHED["Qwen2.5-7B"][0])
MACHINES = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2))
EVERY = pytest.mark.parametrize("framework", FRAMEWORKS)
ANYWHERE = pytest.mark.parametrize(("gpus", "nodes"), MACHINES)


def question(framework: str, gpus: int, nodes: int = 1, space: SearchSpace | None = None, **more: int) -> Question:
    """As ``autotune plan`` puts it."""
    kind, name = gpu_named("h100"), preset_for(gpus, nodes)
    machine = Machine(kind.name, kind.memory, gpus, nodes)
    wanted = PlanRequest("m", MODEL, framework=framework, **more)
    found, left_out = build.planned(space or SearchSpace.load(name), framework_named(framework))
    return Question(wanted.load(machine), machine, kind, name, found, left_out)


@EVERY
@ANYWHERE
def test_a_plan_has_legal_combinations(framework: str, gpus: int, nodes: int) -> None:
    asked = question(framework, gpus, nodes)
    assert asked.space.require.problem(asked.resources) is None
    baseline = asked.baseline()
    assert legality.check_baseline(baseline, asked.resources) == ()
    assert batch_of(baseline, asked.resources).rows == asked.load.rows_per_update
    found = asked.space.candidates(baseline, asked.resources, same_learning=True, limit=40)
    assert found
    assert all(legality.check(one, asked.resources, baseline) == () for one in found)


@EVERY
@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_a_study_has_legal_combinations(framework: str, gpus: int) -> None:
    """Also by the preset's name, and by a file of the user's that extends it."""
    ours, rows = framework_named(framework), gpu_size(gpus, gpus).rows_per_update
    machine = Resources(gpus=gpus, device="cuda", framework=framework, rows_per_update=rows, num_generations=8)
    space, _ = build.without_server(build.fitted(SearchSpace.load(preset_for(gpus)), ours)[0], ours)
    whole = ResolvedRequest(framework=framework, baseline={}, rows_per_update=rows)
    baseline = build.baseline_of(whole, space, machine)
    build.check_baseline(whole, baseline, machine)
    assert set(space.values) | set(space.fixed) <= ours.supported | set(space.values_in(machine)) | {"rollout_mode"}
    assert space.candidates(baseline, machine, same_learning=True, limit=40)
    assert space.candidates(baseline, machine, same_learning=False, limit=40)


@EVERY
def test_a_check_of_the_space_counts_what_is_legal(framework: str) -> None:
    answer = CliRunner().invoke(app, ["check", "--framework", framework, "--gpus", "1", "--json"])
    document = json.loads(answer.stdout)
    assert answer.exit_code == 0
    assert 0 < document["legal"] < document["combinations"]
    assert "space_requires" not in {one["rule"] for one in document["removed"]}
    having = framework_named(framework).supported
    space = SearchSpace.load("single-gpu")
    lacking = {name for name, values in space.values.items() if name not in having and UNSET not in values}
    assert all(name in document["left_out"] for name in lacking)
    assert bool(document["left_out"]) is bool(lacking)


@EVERY
@pytest.mark.parametrize("name", preset_names())
def test_what_goes_is_what_the_framework_lacks(framework: str, name: str) -> None:
    space, having = SearchSpace.load(name), framework_named(framework).supported
    found, left = space.fitted(framework, having)
    listed = {*space.values, *space.fixed}
    assert {*found.values, *found.fixed} == listed & having
    assert set(left) == {name for name in listed - having if UNSET not in space.values.get(name, ())}
    assert found.fitted(framework, having) == (found, ())
    assert not found.require.frameworks or framework in found.require.frameworks


def test_what_a_file_lists_itself_stays_and_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: single-gpu\nknobs: {continuous_batching: [true, false], micro_batch_size: [1, 2]}\n")
    space, said = build.fitted(SearchSpace.load(path), framework_named("ms_swift"))
    assert "continuous_batching" in space.values
    assert "continuous_batching_memory" not in space.values
    assert said.startswith("continuous_batching_memory, ")
    path.write_text("extends: single-gpu\nrequire: {frameworks: [trl]}\nknobs: {micro_batch_size: [1, 2]}\n")
    own, _ = build.fitted(SearchSpace.load(path), framework_named("ms_swift"))
    assert own.require.problem(Resources(gpus=1, device="cuda", framework="ms_swift")) == (
        "the space is for trl, not ms_swift"
    )


def test_a_preset_of_which_nothing_is_left_is_refused() -> None:
    space = SearchSpace.load("single-gpu")
    with pytest.raises(SpaceError, match="no knob is listed"):
        space.fitted("verl", ())


SERVER = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1, "zero_stage": [2, 3]}


@pytest.mark.parametrize(("space", "rows", "group", "ranks"), of("the_servers_gpus_do_not_train"))
def test_the_servers_gpus_do_not_train(space: dict[str, object] | None, rows: int, group: int, ranks: int) -> None:
    own = None if space is None else SearchSpace.from_json({"knobs": space})
    asked = question("trl", 8, 1, own, rows_per_update=rows, num_generations=group)
    baseline = asked.baseline()
    batch = batch_of(baseline, asked.resources)
    assert (batch.rows, batch.group, batch.ranks) == (rows, group, ranks)
    assert legality.check_baseline(baseline, asked.resources) == ()
    assert asked.space.count(baseline, asked.resources).legal


def test_rows_that_nothing_shares_are_refused_with_a_number_that_can_be_taken() -> None:
    with pytest.raises(UsageError, match=r"^11 rows per update cannot be shared by 8 training processes; .*of 8$"):
        question("trl", 8, rows_per_update=11, num_generations=11).baseline()
    spaceless = replace(question("trl", 8, rows_per_update=16), space=SearchSpace({"zero_stage": (0, 1)}))
    assert batch_of(spaceless.baseline(), spaceless.resources).rows == 16
