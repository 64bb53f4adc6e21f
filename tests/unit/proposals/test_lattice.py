"""Candidates as points."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.domain import Configuration
from autotune.proposals.candidate_grid import CandidateGrid, Point
from search_spaces.configuration import KnobValue
from search_spaces.native import UNSET
from tests.contracts.proposer_suite import landscape
from tests.support.not_none import not_none

WORLD = landscape()
GRID = CandidateGrid(WORLD.permitted, WORLD.searched, ())
EVERY = np.ones(len(GRID), dtype=np.bool_)


def point_of(grid: CandidateGrid, configuration: Configuration) -> Point | None:
    return grid.points([configuration])[0]


def _index(configuration: Configuration) -> int:
    return WORLD.permitted.index(configuration)


def test_every_candidate_has_a_point_of_its_own() -> None:
    points = [point_of(GRID, c) for c in WORLD.permitted]
    assert len(set(points)) == len(WORLD.permitted)
    assert [GRID.at(p) for p in points if p is not None] == list(range(len(WORLD.permitted)))


def test_knobs_with_one_value_are_no_dimensions() -> None:
    grid = CandidateGrid(WORLD.headline, WORLD.searched, ())
    assert {d.name for d in grid.dimensions} == {
        "micro_batch_size", "gradient_checkpointing", "attn_implementation", "logprob_rows",
    }  # fmt: skip


def test_an_anchor_outside_the_candidates_gets_a_point() -> None:
    anchor = WORLD.baseline.with_(micro_batch_size=6)
    assert point_of(GRID, anchor) is None
    point = not_none(point_of(CandidateGrid(WORLD.permitted, WORLD.searched, (anchor,)), anchor))
    assert CandidateGrid(WORLD.permitted, WORLD.searched, (anchor,)).at(point) is None


def test_the_nearest_of_a_candidate_is_itself_and_then_a_neighbour() -> None:
    start = WORLD.baseline.with_(micro_batch_size=8, logprob_rows=4)
    point = not_none(point_of(GRID, start))
    assert GRID.nearest(point, EVERY) == _index(start)
    left = EVERY.copy()
    left[_index(start)] = False
    neighbour = WORLD.permitted[GRID.nearest(point, left)]
    assert set(start.difference(neighbour)) < {"micro_batch_size", "logprob_rows"}


def test_what_is_taken_is_left_out_and_what_is_unknown_ignored() -> None:
    left = GRID.without([Configuration(dict(WORLD.permitted[5])), Configuration({})], ())
    assert np.flatnonzero(~left).tolist() == [5]
    assert GRID.without((), ()).all()


def test_an_empty_lattice_has_nothing_left() -> None:
    empty = CandidateGrid((), WORLD.searched, (WORLD.baseline,))
    assert len(empty) == 0
    assert not empty.without([WORLD.baseline], ()).any()


@pytest.mark.parametrize(("micro", "steps", "rows"), [(1, 8, 8), (8, 1, 8), (4, 4, 16), (2, "accumulation", 16)])
def test_steps_per_generation_lie_by_the_rows_they_generate(micro: int, steps: int | str, rows: int) -> None:
    several = [
        Configuration({"micro_batch_size": m, "steps_per_generation": s, "gradient_accumulation_steps": 8})
        for m, s in ((1, 8), (8, 1), (4, 4), (2, "accumulation"), (1, 1))
    ]
    grid = CandidateGrid(several, ("micro_batch_size", "steps_per_generation"), ())
    configuration = Configuration(
        {"micro_batch_size": micro, "steps_per_generation": steps, "gradient_accumulation_steps": 8}
    )
    point = not_none(point_of(grid, configuration))
    assert [d.values[place] for d, place in zip(grid.dimensions, point, strict=True)] == [micro, rows]


def test_a_knob_some_candidate_does_not_set_is_no_dimension() -> None:
    several = [Configuration({"micro_batch_size": 1}), WORLD.baseline, WORLD.baseline.with_(micro_batch_size=2)]
    grid = CandidateGrid(several, WORLD.searched, ())
    assert [d.name for d in grid.dimensions] == ["micro_batch_size"]
    assert grid.nearest((1,), np.ones(3, dtype=np.bool_)) == 2


def test_a_knob_that_may_be_left_to_the_framework_has_a_place_for_that() -> None:
    engines: list[dict[str, KnobValue]] = [{}, {"max_num_seqs": 64}, {"max_num_seqs": 8}]
    several = [Configuration({"micro_batch_size": m, **engine}) for m in (1, 2) for engine in engines]
    anchor = Configuration({"micro_batch_size": 4, "max_num_seqs": 16})
    grid = CandidateGrid(several, ("micro_batch_size", "max_num_seqs"), (anchor,), ["max_num_seqs"])
    sequences, rows = grid.dimensions
    assert (sequences.name, sequences.values, sequences.ordered) == ("max_num_seqs", (8, 16, 64, UNSET), False)
    assert rows.ordered
    points = [point_of(grid, c) for c in several]
    assert [grid.at(p) for p in points if p is not None] == list(range(6))
    assert point_of(grid, several[0]) == (3, 0)
    assert point_of(grid, anchor) is not None
    plain = CandidateGrid(several[1:3], ("max_num_seqs",), (), ["max_num_seqs"])
    assert plain.dimensions[0].ordered, "as ever where all set it"


def test_all_settings_of_an_engine_that_crashed_are_suspected_together() -> None:
    engines = [("transformers", 0.3), ("vllm", 0.3), ("vllm", 0.5)]
    made = [
        Configuration({"rollout_engine": engine, "gpu_memory_utilization": share, "micro_batch_size": rows})
        for engine, share in engines
        for rows in (1, 2)
    ]
    grid = CandidateGrid(made, ("rollout_engine", "gpu_memory_utilization", "micro_batch_size"), ())
    assert grid.suspicion([made[2]], made[:2]).tolist() == [0, 0, 2, 2, 1, 1]
    assert not grid.suspicion([made[2]], [*made[:2], made[3]]).any(), "another run of that engine held"
