"""The stated figure carried over to other lengths: if this is wrong, `verify --steps` blames the wrong thing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import CycleKind, CycleRecord, Phase, Trial
from autotune.verify.compare_run import CycleShape, longest_rows
from autotune.verify.length_model import LengthPrediction, predict_from, work_of
from tests.support import factories as f
from tests.support.not_none import not_none

SHAPE = CycleShape(rows=8, trained_rows=8, updates=1, generation_rows=8)
HALVES = replace(SHAPE, generation_rows=4)
TWICE = tuple(min(2 * n, 128) for n in f.LENGTHS)
LONGEST = (128,) * 8
SHORT = (8, 8, 10, 12, 16, 20, 24, 30)


def machine(lengths: tuple[int, ...], kind: CycleKind, shape: CycleShape, speed: float = 1.0) -> CycleRecord:
    """A cycle of a machine whose law is known: 10 ms a step, 2 ms a token, 1 ms a computed token, 0.3 s fixed."""
    computed = 8 * (40 + max(lengths))
    longest = sum(longest_rows(lengths, shape))
    phases = {
        Phase.GENERATE.value: 0.2 + 0.010 * longest + 0.002 * sum(lengths),
        Phase.UPDATE.value: 0.4 + 0.001 * computed,
        Phase.REWARD.value: 0.0001 * sum(lengths),
        Phase.SYNC.value: 0.3,
    }
    phases = {name: seconds * speed for name, seconds in phases.items()}
    return f.cycle(seconds=sum(phases.values()), lengths=lengths, cycle_kind=kind, phases=phases)


def trial(shape: CycleShape = HALVES, speed: float = 1.0, longer: bool = True) -> Trial:
    cycles = [machine(f.LENGTHS, CycleKind.RECORDED, shape, speed)] * 3
    if longer:
        cycles += [machine(TWICE, CycleKind.DOUBLE, shape, speed), machine(LONGEST, CycleKind.MAXIMUM, shape, speed)]
    return f.finished(1).with_(cycles=tuple(replace(c, index=i) for i, c in enumerate(cycles)))


def predicted(trials: list[Trial], shape: CycleShape = HALVES, stated: float | None = None) -> LengthPrediction:
    return not_none(predict_from(trials, stated or trials[0].tokens_per_hour or 0.0, shape))


def test_at_the_recorded_lengths_it_is_the_stated_figure_whatever_that_is() -> None:
    for stated in (100_000.0, 250_000.0):
        cycle = machine(f.LENGTHS, CycleKind.NATURAL, HALVES)
        seconds = sum(predicted([trial()], stated=stated).seconds(cycle).values())
        assert 3600 * cycle.completion_tokens / seconds == pytest.approx(stated)


@pytest.mark.parametrize("lengths", [f.LENGTHS, TWICE, LONGEST, tuple(reversed(f.LENGTHS))])
def test_a_law_it_can_express_is_found_again_phase_by_phase(lengths: tuple[int, ...]) -> None:
    cycle = machine(lengths, CycleKind.NATURAL, HALVES)
    for phase, seconds in predicted([trial()]).seconds(cycle).items():
        assert seconds == pytest.approx(cycle.phases[phase], rel=0.05), phase


def test_recorded_lengths_that_all_hold_the_longest_row_leave_the_rest_to_the_natural_cycles() -> None:
    """1x, 2x and the maximum have one longest row then; only natural cycles show what a shorter one saves."""
    free = replace(machine(SHORT, CycleKind.NATURAL, SHAPE), index=9)
    one = trial(SHAPE)
    with_natural = predicted([one.with_(cycles=(free, *one.cycles))], SHAPE)
    without = predicted([one], SHAPE)
    other = machine(tuple(n + 4 for n in SHORT), CycleKind.NATURAL, SHAPE)
    errors = [abs(sum(m.seconds(other).values()) / other.seconds - 1.0) for m in (with_natural, without)]
    assert errors[0] < 0.02 < errors[1]


def test_a_disturbed_natural_cycle_tells_of_other_lengths_where_nothing_else_does() -> None:
    """On a restless machine all of them are, and proportional time foretells short completions a third too fast."""
    free = replace(machine(SHORT, CycleKind.NATURAL, SHAPE, speed=1.1), index=9, noisy=True)
    other = machine(tuple(n + 4 for n in SHORT), CycleKind.NATURAL, SHAPE)

    def error(cycles: tuple[CycleRecord, ...]) -> float:
        found = predicted([f.finished(1).with_(cycles=cycles)], SHAPE)
        return abs(sum(found.seconds(other).values()) / other.seconds - 1.0)

    once, longer = trial(SHAPE, longer=False).cycles, trial(SHAPE).cycles
    assert error((free, *once)) < 0.5 * error(once)
    assert error((free, *longer)) == error(longer), "where others do, it is left aside"


def test_other_trials_of_the_configuration_tell_what_lengths_cost_and_nothing_else() -> None:
    """A kept baseline is confirmed at 1x alone; what short completions save was measured by its first trial."""
    once, other = trial(SHAPE, longer=False), machine(SHORT, CycleKind.NATURAL, SHAPE)
    free = replace(machine(SHORT, CycleKind.NATURAL, SHAPE, speed=1.1), index=9)
    slower = trial(SHAPE, speed=1.1, longer=False).with_(number=0)
    slower = slower.with_(cycles=(free, *slower.cycles))

    def seconds(*alike: Trial) -> float:
        found = not_none(predict_from([once], once.tokens_per_hour or 0.0, SHAPE, alike))
        assert found.cycles == {"1x": 3, "2x": 0, "maximum": 0}
        return sum(found.seconds(other).values())

    level = sum(machine(f.LENGTHS, CycleKind.NATURAL, SHAPE).phases.values())
    expected = level + 1.1 * (sum(other.phases.values()) - level)
    assert seconds(slower) == pytest.approx(expected, rel=0.03)
    assert abs(seconds() / expected - 1.0) > 0.05
    assert seconds(once) == seconds(), "what the figure rests on is not counted twice"


def test_its_own_times_are_never_looked_at() -> None:
    cycle = machine(f.LENGTHS, CycleKind.NATURAL, HALVES)
    slow = replace(cycle, seconds=99.0, phases={p: 9 * s for p, s in cycle.phases.items()})
    model = predicted([trial()])
    assert model.seconds(slow) == model.seconds(cycle)


def test_what_processes_differ_by_is_in_no_slope() -> None:
    """One process a fifth slower, and only it ran longer cycles: the slopes are its own, the level is both's."""
    mixed = predicted([trial(longer=False), trial(speed=1.2)])
    level = sum(machine(f.LENGTHS, CycleKind.NATURAL, HALVES).phases.values())
    longest = machine(LONGEST, CycleKind.NATURAL, HALVES)
    assert mixed.cycles == {"1x": 6, "2x": 1, "maximum": 1}
    found = {p: s / mixed.scale for p, s in mixed.seconds(longest).items()}
    assert sum(found.values()) == pytest.approx(1.1 * level + 1.2 * (longest.seconds - level), rel=0.02)


def test_measured_at_one_length_only_time_is_proportional_to_work() -> None:
    model = predicted([trial(SHAPE, longer=False)], SHAPE)
    once, longest = (machine(n, CycleKind.NATURAL, SHAPE) for n in (f.LENGTHS, LONGEST))
    assert model.seconds(longest)[Phase.GENERATE.value] == pytest.approx(
        model.seconds(once)[Phase.GENERATE.value] * work_of(longest, SHAPE).longest / work_of(once, SHAPE).longest
    )
    assert model.seconds(longest)[Phase.SYNC.value] == model.seconds(once)[Phase.SYNC.value]
    assert model.cycles == {"1x": 3, "2x": 0, "maximum": 0}


def test_noise_that_makes_longer_cycles_faster_bends_no_curve_downwards() -> None:
    odd = trial()
    bent = tuple(
        replace(c, phases={p: s / 4 for p, s in c.phases.items()}) if c.cycle_kind is CycleKind.MAXIMUM else c
        for c in odd.cycles
    )
    model = predicted([odd.with_(cycles=bent)])
    for curve in model.curves.values():
        times = [t for _, t in curve.points]
        assert times == sorted(times)


def test_no_cycle_at_the_recorded_lengths_gives_no_prediction() -> None:
    assert predict_from([f.failed(1)], 1000.0, SHAPE) is None
    assert predict_from([trial()], 0.0, SHAPE) is None


@given(st.lists(st.integers(1, 128), min_size=8, max_size=8))
def test_any_lengths_take_a_time_that_is_not_negative_and_more_is_not_less(lengths: list[int]) -> None:
    model = predicted([trial()])
    fewer = machine(tuple(lengths), CycleKind.NATURAL, HALVES)
    more = machine(tuple(min(128, n + 16) for n in lengths), CycleKind.NATURAL, HALVES)
    for phase, seconds in model.seconds(fewer).items():
        assert 0 <= seconds <= model.seconds(more)[phase] + 1e-9
