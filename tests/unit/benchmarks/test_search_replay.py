"""Replays: the same trials for every arm, costs as recorded, figures within their bounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Trial
from autotune.proposals.candidate_grid import Mask
from benchmarks.search import report
from benchmarks.search.__main__ import main
from benchmarks.search.replay import Course, medians, ratio, replay
from benchmarks.search.world import World, holds, is_oom, judging, picking
from tests.support.synthetic_table import COLD_S, KNOBS, WARM_S, on_disk, table

pytestmark = pytest.mark.full

FEW = {**KNOBS, "logprob_rows": (1, 2), "logprob_token_chunk": (256,)}


class Listed:
    """Rows as listed."""

    def __init__(self, rows: Sequence[int]) -> None:
        self.rows = list(rows)
        self.seen: list[tuple[Trial, ...]] = []

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        self.seen.append(tuple(history))
        return self.rows.pop(0)


@pytest.fixture(scope="module")
def world() -> World:
    return World(table(knobs=FEW, top=5))


@pytest.fixture(scope="module")
def shared() -> World:
    """Of a GPU, where a process runs several rows."""
    return World(table(knobs=FEW, top=5, device="cuda"))


def others(world: World) -> list[int]:
    return [i for i in range(len(world.configurations)) if i != world.baseline]


@given(seed=st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_whoever_tries_a_row_gets_the_same_trial(world: World, seed: int) -> None:
    forward, backward = Listed(others(world)), Listed(others(world)[::-1])
    one = replay(world, "a", forward, seed, most=1000)
    two = replay(world, "b", backward, seed, most=1000)
    assert one.rows == two.rows[::-1]
    first = {t.configuration: t.with_(number=0) for t in forward.seen[-1][1:]}
    again = {t.configuration: t.with_(number=0) for t in backward.seen[-1][1:]}
    shared = set(first) & set(again)
    assert len(shared) >= len(first) - 1
    assert all(first[c] == again[c] for c in shared)


def test_what_runs_beside_a_proposal_has_no_result_yet(world: World) -> None:
    alone, beside = Listed(others(world)), Listed(others(world))
    one = replay(world, "a", alone, 0, most=6)
    two = replay(world, "b", beside, 0, most=6, beside=3)
    assert one.missing == two.missing, "the trials are the same; only what was known of them differs"
    assert [len(history) for history in beside.seen] == [1, 2, 3, 4, 5, 6]
    for history in beside.seen:
        running = [t.number for t in history if not t.state.is_finished]
        assert running == [t.number for t in history[1:]][-3:]
        assert all(not t.cycles and t.outcome is None for t in history if t.number in running)
    assert all(t.state.is_finished for history in alone.seen for t in history)


def test_another_seed_is_another_draw_of_the_same_runs(world: World) -> None:
    place = world.best
    drawn = [world.draw(place, 1, seed) for seed in range(20)]
    row = world.table.rows[place]
    known = {c.seconds for run in (row.trial, *row.repeats) for c in run.cycles}
    assert len({t.tokens_per_hour for t in drawn}) > 5
    assert all(c.seconds in known for t in drawn for c in t.speed_cycles())
    assert all(len(t.speed_cycles()) == 3 for t in drawn)


def test_nothing_is_tried_twice_and_the_baseline_is_the_start(world: World) -> None:
    listed = Listed(others(world))
    course = replay(world, "a", listed, 0, most=1000)
    assert sorted([*course.rows, world.baseline]) == list(range(len(world.configurations)))
    assert listed.seen[0][0].configuration == world.table.header.baseline
    assert [t.number for t in listed.seen[-1]] == list(range(len(listed.seen)))


@pytest.mark.parametrize("row", ["baseline", "twice"])
def test_a_search_that_proposes_what_it_may_not_is_found_out(world: World, row: str) -> None:
    rows = [world.baseline] if row == "baseline" else [others(world)[0]] * 2
    with pytest.raises(RuntimeError, match="which it may not"):
        replay(world, "a", Listed(rows), 0, most=5)


def test_the_filter_holds_rows_back_until_nothing_else_is_left(world: World) -> None:
    blocked = {i for i in others(world) if world.configurations[i]["micro_batch_size"] == 8}

    def only(history: Sequence[Trial]) -> Mask:
        return np.array([i not in blocked for i in range(len(world.configurations))])

    class First:
        def propose(self, history: Sequence[Trial], left: Mask) -> int:
            return int(np.flatnonzero(left)[0])

    course = replay(world, "a", First(), 0, most=1000, memory_filter=only)
    free = len(course.rows) - len(blocked)
    assert blocked.isdisjoint(course.rows[:free])
    assert set(course.rows[free:]) == blocked


def test_a_trial_costs_a_warm_start_only_after_one_that_left_its_worker(shared: World) -> None:
    world = shared
    fitting = [i for i in others(world) if holds(world.table.rows[i])]
    failing = [i for i in others(world) if is_oom(world.table.rows[i].trial)]
    start = world.keys[world.baseline]
    here = [i for i in fitting if world.keys[i] == start]
    there = [i for i in fitting if world.keys[i] != start]
    bad = next(i for i in failing if world.keys[i] == start)
    order = [here[0], here[1], bad, here[2], here[3], there[0], there[1]]
    course = replay(world, "a", Listed(order), 0, most=len(order))
    works = [world.costs[i].work for i in order]
    starts = [round(s - w, 6) for s, w in zip(course.seconds, works, strict=True)]
    assert starts == [WARM_S, WARM_S, WARM_S, COLD_S, WARM_S, COLD_S, WARM_S]
    assert course.wasted[2] == course.seconds[2]
    assert course.wasted[3] == pytest.approx(COLD_S - WARM_S)
    assert sum(course.wasted) == pytest.approx(course.wasted[2] + course.wasted[3])
    assert course.first_ooms() == 1
    assert 0 < course.lost() < 1


def test_on_a_cpu_every_start_is_the_rows_own(world: World) -> None:
    course = replay(world, "a", Listed(others(world)), 0, most=1000)
    recorded = [world.table.rows[row].trial.seconds for row in course.rows]
    assert course.seconds == pytest.approx(recorded)
    assert course.lost() == pytest.approx(
        sum(s for s, oom in zip(course.seconds[:30], course.ooms, strict=False) if oom) / sum(course.seconds[:30])
    )


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_recorded_row_costs_what_was_recorded(device: str) -> None:
    world = World(table(knobs=FEW, top=5, device=device))
    for place, row in enumerate(world.table.rows):
        cost, started = world.costs[place], sum(row.trial.startup.values())
        assert {started} <= {cost.cold, cost.warm}
        assert cost.work + started == pytest.approx(row.trial.seconds)
        assert cost.warm <= cost.cold


def test_the_best_is_judged_by_runs_that_did_not_pick_it(world: World) -> None:
    row = world.table.rows[world.best]
    assert len(row.repeats) == 3
    assert not {t.number for t in picking(row)} & {t.number for t in judging(row)}
    assert len(judging(row)) == 2
    lucky = row.trial.with_(cycles=tuple(replace(c, seconds=c.seconds / 9) for c in row.trial.cycles))
    rows = list(world.table.rows)
    rows[world.best] = replace(row, trial=lucky)
    made = World(replace(world.table, rows=tuple(rows)))
    assert made.best == world.best
    assert made.ceiling == world.ceiling


@pytest.mark.parametrize(("repeats", "picked"), [(0, 1), (1, 1), (2, 2), (3, 2), (9, 5)])
def test_no_run_both_picks_the_best_and_judges_it(world: World, repeats: int, picked: int) -> None:
    row = replace(world.table.rows[world.best], repeats=world.table.rows[world.best].repeats[:1] * repeats)
    runs = [run.with_(number=number) for number, run in enumerate((row.trial, *row.repeats))]
    row = replace(row, trial=runs[0], repeats=tuple(runs[1:]))
    picks, judges = [run.number for run in picking(row)], [run.number for run in judging(row)]
    assert picks == list(range(picked))
    assert judges == (list(range(picked, repeats + 1)) or [0])


def test_a_row_of_which_a_repeat_failed_does_not_hold(world: World) -> None:
    best = world.best
    failed = next(r.trial for r in world.table.rows if is_oom(r.trial)).with_(
        configuration=world.table.rows[best].configuration
    )
    rows = list(world.table.rows)
    rows[best] = replace(rows[best], repeats=(*rows[best].repeats, failed))
    made = World(replace(world.table, rows=tuple(rows)))
    assert made.best != best
    assert made.missing(best) == 1.0
    assert is_oom(made.draw(best, 1, 0))


def test_what_is_missing_is_of_the_row_that_looks_best(world: World) -> None:
    order = others(world)
    course = replay(world, "a", Listed(order), 3, most=len(order))
    start = world.draw(world.baseline, 0, 3).tokens_per_hour
    assert start is not None
    looks, best = start, world.missing(world.baseline)
    for row, missing in zip(course.rows, course.missing, strict=True):
        speed = world.draw(row, 1, 3).tokens_per_hour if holds(world.table.rows[row]) else None
        if speed is not None and speed > looks:
            looks, best = speed, world.missing(row)
        assert missing == pytest.approx(best)
    assert course.missing[-1] < 0.05
    reached = course.reached(0.05)
    assert reached is not None
    assert course.missing[reached - 1] <= 0.05
    assert all(m > 0.05 for m in course.missing[: reached - 1])
    assert course.reached(-1.0) is None


COUNTS = st.lists(st.one_of(st.integers(1, 100).map(float), st.just(math.inf)), min_size=1, max_size=25)


@given(values=COUNTS, seed=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_an_interval_holds_its_median_and_stays_among_the_values(values: list[float], seed: int) -> None:
    found = medians(values, np.random.default_rng(seed))
    assert found.middle == statistics.median(values)
    assert min(values) <= found.low <= found.middle <= found.high <= max(values)
    assert found == medians(values, np.random.default_rng(seed))


FINITE = st.lists(st.integers(1, 100).map(float), min_size=2, max_size=25)


@given(values=FINITE, factor=st.sampled_from([1.0, 2.0, 3.5]))
@settings(max_examples=30, deadline=None)
def test_the_bootstrap_is_paired(values: list[float], factor: float) -> None:
    """What is always so many times ours has no uncertainty, however much the seeds differ."""
    found = ratio(values, [factor * v for v in values], np.random.default_rng(0))
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


def test_what_was_never_reached_makes_no_false_ratio() -> None:
    never = [math.inf] * 5
    draws = np.random.default_rng(0)
    assert ratio(never, [5.0] * 5, draws).middle == 0.0
    assert ratio(never, never, draws).middle == 1.0
    assert ratio([5.0] * 5, never, draws).middle == math.inf


def test_an_interval_narrows_with_seeds() -> None:
    chance = np.random.default_rng(0)
    few, many = (chance.integers(1, 60, size=n).astype(float) for n in (10, 400))
    small, large = (medians(list(v), np.random.default_rng(1)) for v in (few, many))
    assert large.high - large.low < small.high - small.low


def test_several_jobs_print_the_same_verdict_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = on_disk(table(knobs=FEW, top=5), tmp_path)
    words = ["--table", str(path), "--seeds", "2", "--trials", "5", "--arms", "random,random+filter,start"]
    code = main(words)
    out = capsys.readouterr().out
    assert code == 3
    assert "DOES NOT COUNT" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("synthetic  ")] == [
        "random",
        "random+filter",
        "start",
    ]
    assert "2 seeds only try the command" in out
    assert main([*words, "--jobs", "2"]) == 3
    assert capsys.readouterr().out == out


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = on_disk(table(knobs=FEW), tmp_path)
    for words, said in (
        (["--arms", "best"], "--arms best: there is no such arm"),
        (["--seeds", "0"], "--seeds 0: expected a whole number above 0"),
        (["--trials", "-3"], "--trials -3: expected a whole number above 0"),
        ([str(path)], "--table: two of the files have the same name"),
        ([str(tmp_path / "none.jsonl")], f"{tmp_path / 'none.jsonl'} cannot be read"),
    ):
        assert main(["--table", str(path), *words]) == 2
        assert capsys.readouterr().err.startswith(f"error: {said}")


def test_ratios_and_lines_compare_with_the_best_peer_that_had_the_filter() -> None:
    def course(arm: str, seed: int, at: int) -> Course:
        missing = tuple(1.0 if n < at else 0.0 for n in range(1, 11))
        return Course(arm, "w", seed, tuple(range(10)), (1.0,) * 10, (0.0,) * 10, (False,) * 10, missing)

    arms = {"tpe": 2, "tpe+filter": 6, "random+filter": 8, "tpe+filter+prior": 1, "grey": 3}
    found = report.lines([course(arm, seed, at) for arm, at in arms.items() for seed in range(4)])
    line = next(one for one in found if one.arm == "grey")
    assert line.peer == "tpe+filter"
    assert line.against is not None
    assert line.against.middle == pytest.approx(2.0)
    assert all(one.against is None for one in found if one.arm != "grey")


def test_what_is_still_missing_is_told_after_twenty_trials_or_all_there_were() -> None:
    def course(arm: str, seed: int, count: int) -> Course:
        missing = tuple(1.0 / n for n in range(1, count + 1))
        blank = (0.0,) * count
        return Course(arm, "w", seed, tuple(range(count)), blank, blank, (False,) * count, missing)

    found = report.lines([course(arm, seed, n) for arm, n in (("grey", 30), ("tpe", 5)) for seed in range(3)])
    assert [line.lacks.middle for line in found] == [pytest.approx(1 / report.AT), pytest.approx(1 / 5)]
    assert "5.0% (5.0% to 5.0%)" in report.drawn(found, 30)
