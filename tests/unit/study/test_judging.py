"""A running trial beside the others: who it competes with, which of its cycles count, and when it stays decided."""

from __future__ import annotations

import math
from dataclasses import replace

from autotune.domain import Ceiling, CycleKind, Outcome, Trial, TrialKind, TrialState
from autotune.statistics.noise import NoisePrior
from autotune.study import judging
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec()
LOOKED = f.protocol(recorded=8, looks=(3, 5, 8))


def FOREVER() -> float:  # noqa: N802
    return math.inf


def running(seconds: list[float], number: int = 9, **changes: object) -> Trial:
    cycles = tuple(f.cycle(i, seconds=s) for i, s in enumerate(seconds))
    return f.trial(number, state=TrialState.RUNNING, attempt=1, protocol=LOOKED, cycles=cycles).with_(**changes)


def judge(others: list[Trial], **changes: object) -> judging.Judge:
    return not_none(judging.judge_of(SPEC, running([], **changes), others, FOREVER))


def test_only_search_trials_with_looks_are_judged() -> None:
    others = [f.finished(0)]
    for kind in TrialKind:
        found = judging.judge_of(SPEC, running([], kind=kind), others, FOREVER)
        assert (found is not None) == (kind is TrialKind.SEARCH)
    assert judging.judge_of(SPEC, running([], protocol=f.protocol()), others, FOREVER) is None


def test_a_slow_trial_is_told_to_end_once_and_for_all() -> None:
    one = judge([f.finished(0, cycle_seconds=10.0)])
    one.see(running([80.0]))
    assert one.enough
    first = not_none(one.ceiling)
    assert first.rival == 0
    one.see(running([80.0, 1.0, 1.0]))
    assert one.enough
    assert one.ceiling == first


def test_on_a_gpu_processes_are_presumed_to_differ_by_more() -> None:
    """As the one GPU that ran configurations twice showed: a rival's bounds are wider there."""
    others = [f.finished(0), f.finished(1)]
    configuration = running([]).configuration
    on_cpu = judging.known_of(SPEC, others, configuration)
    on_gpu = judging.known_of(replace(SPEC, resources=replace(SPEC.resources, device="cuda")), others, configuration)
    assert on_gpu.between > 2 * on_cpu.between
    assert on_gpu.rival.low < not_none(on_cpu.rival).low


def test_warm_up_natural_and_maximum_cycles_are_no_evidence() -> None:
    one = judge([f.finished(0)])
    for kind in (CycleKind.WARMUP, CycleKind.NATURAL, CycleKind.MAXIMUM):
        one.see(running([], cycles=tuple(f.cycle(i, seconds=900.0, cycle_kind=kind) for i in range(9))))
    assert not one.enough


def test_discarded_cycles_do_not_count_for_a_look_and_disturbed_ones_do_not_condemn() -> None:
    one = judge([f.finished(0)])
    one.see(running([], cycles=tuple(f.cycle(i, seconds=900.0, accepted=False) for i in range(9))))
    assert not one.enough
    one.see(running([], cycles=tuple(f.cycle(i, seconds=900.0, noisy=True) for i in range(2))))
    assert not one.enough
    one.see(running([], cycles=tuple(f.cycle(i, seconds=900.0, noisy=True) for i in range(3))))
    assert one.enough
    assert one.ceiling is None


def test_other_numerics_never_end_a_trial_with_the_same_learning() -> None:
    """A bf16 trial twice as fast leads the second row; the first is still open to this one."""
    baseline = f.finished(0, cycle_seconds=10.0)
    other = f.finished(1, cycle_seconds=2.0, configuration=f.configuration(precision="bf16"))
    same = judge([baseline, other])
    same.see(running([9.0, 9.1, 9.0]))
    assert same.ceiling is None
    permitted = judge([baseline, other], configuration=f.configuration(precision="bf16", logprob_rows=1))
    permitted.see(running([9.0, 9.1, 9.0]))
    assert not_none(permitted.ceiling).rival == 1


def test_nothing_that_is_not_feasible_is_a_rival() -> None:
    stopped = f.finished(
        1, cycle_seconds=1.0, state=TrialState.PRUNED, outcome=Outcome(ceiling=Ceiling(1.0, 2.0, 0, 1))
    )
    gone = f.finished(2, cycle_seconds=1.0, state=TrialState.FAIL, outcome=f.oom())
    one = judge([f.finished(0, cycle_seconds=10.0), stopped, gone])
    one.see(running([10.0]))
    assert one.ceiling is None
    one.see(running([10.0, 10.0, 10.0]))
    assert one.ceiling is None
    assert one.enough


def test_a_trial_without_time_for_the_next_look_ends_with_what_it_has() -> None:
    """Where cycles scatter much and processes little, so that more cycles would tell."""
    others = [f.finished(0, cycle_seconds=[10.0, 9.9, 10.1])]
    known = judging.known_of(SPEC, others, running([]).configuration)
    known = replace(known, between=0.01**2, prior=NoisePrior(0.15**2, 20))
    cycles = [15.0 * math.exp(noise) for noise in (-0.15, 0.15, 0.0)]
    for left, ends in ((math.inf, False), (1.0, True)):
        one = judging.Judge(known, lambda left=left: left)
        one.see(running(cycles))
        assert (one.enough, one.ceiling) == (ends, None)
