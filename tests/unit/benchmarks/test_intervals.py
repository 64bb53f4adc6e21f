"""The benchmark of intervals: what its worlds are made of, and that its figures tell a good interval from a bad one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from autotune.domain import CycleKind, Protocol, Trial, TrialKind
from autotune.statistics.noise import GPU_PROCESS, PROCESS
from autotune.study.confirmation import TRIES
from benchmarks.intervals import fitting, product, scoring
from benchmarks.intervals.noises import NOISES, SLOWEST, Machine, Noise
from benchmarks.intervals.product import ROUNDS, Statement
from benchmarks.intervals.recordings import Recording, recordings
from benchmarks.intervals.sight import CLEAN, disturbed_runs, sight, slope_of
from benchmarks.intervals.studies import SEARCHED, Course, Study, run

EVEN = Noise("nothing scatters", processes=0.0, cycles=0.0)
"""A world in which only what a test adds moves a cycle."""


@pytest.fixture(scope="module")
def every() -> list[Recording]:
    return recordings()


def logs_of(noise: Noise, seed: int, *, trials: int = 1, cycles: int = 12, baseline: bool = True) -> list[list[float]]:
    """Logarithms of how much longer than usual each cycle takes, by trial."""
    machine = Machine(noise, np.random.default_rng(seed))
    logs = []
    for _ in range(trials):
        machine.begin(baseline=baseline, pair=None)
        logs.append([math.log(machine.cycle(5.0, recorded=True)[0] / 5.0) for _ in range(cycles)])
    return logs


def test_every_recording_with_repeats_is_read(every: list[Recording]) -> None:
    names = [one.name for one in every]
    assert len(set(names)) == len(names) == 12
    assert [one.on_gpu for one in every] == [True, True, *[False] * 10]
    for one in every:
        assert one.variance >= one.cycles > 0.0
        assert all(abs(p.mean()) < 1e-9 and len(p) == 3 for p in one.patterns)
        assert math.sqrt(np.mean(one.processes**2)) == pytest.approx(math.sqrt(one.variance), rel=1e-6)


def test_the_constants_are_what_the_recordings_say(every: list[Recording]) -> None:
    for on_gpu, constant in ((False, PROCESS), (True, GPU_PROCESS)):
        fitted = fitting.presumed(every, on_gpu=on_gpu)
        assert math.sqrt(constant.variance) == pytest.approx(math.sqrt(fitted.variance), rel=0.05)


def test_the_fit_finds_the_spread_of_made_up_recordings() -> None:
    def recording(spread: float) -> Recording:
        return Recording("made", False, np.zeros(2), (), np.zeros(1), spread**2 + 0.01**2, 50.0, 0.01**2)

    prior, _ = fitting.likeliest([recording(0.08)] * 6, 8.0)
    assert math.sqrt(prior.variance) == pytest.approx(0.08, rel=0.1)
    alike, unlike = ([recording(s) for s in spreads] for spreads in ([0.08] * 6, [0.02, 0.3] * 3))
    gain = [fitting.likeliest(some, 50.0)[1] - fitting.likeliest(some, 2.0)[1] for some in (alike, unlike)]
    assert gain[0] > 0.0 > gain[1], "many degrees for machines alike, few for unlike ones"


def test_the_slope_is_of_disturbed_cycles_against_clean_ones_of_the_same_run() -> None:
    def cycle(outside: float, slowdown: float, kind: str = "recorded") -> dict[str, object]:
        return {
            "cycle_kind": kind, "outside_cpu": outside, "seconds": 5.0 * math.exp(slowdown), "completion_tokens": 100
        }  # fmt: skip

    level = [cycle(0.02, 0.0), cycle(0.02, 0.0), cycle(0.9, 0.0, "warmup")]
    fit = slope_of([[*level, cycle(0.12, 0.25)], [*level, cycle(0.22, 0.5)], [cycle(0.3, 1.0)], level])
    assert fit == (2, pytest.approx(2.5), pytest.approx(0.0, abs=1e-9))


def test_the_guard_sees_what_was_recorded() -> None:
    cpu, gpu = sight(False), sight(True)
    assert 2.5 < cpu.slope.slope < 3.5
    assert cpu.slope == slope_of(disturbed_runs()) == gpu.slope
    assert 0.01 < cpu.background.min() < cpu.background.max() <= CLEAN
    assert gpu.background.max() < 0.01
    drifted = [np.mean(one > 0.03) for one in (gpu.drifts, cpu.drifts, cpu.spurious)]
    assert drifted[0] < 0.05 < 0.15 < drifted[1] < 0.3 < 0.7 < drifted[2]


@pytest.mark.parametrize("name", [name for name in NOISES if name.endswith("CPU")])
def test_what_disturbs_only_slows(name: str) -> None:
    noise = NOISES[name]
    clean = replace(EVEN, **{w: getattr(noise, w) for w in ("bursts", "side", "each", "trials", "rounds", "spurious")})
    logs = [log for seed in range(40) for trial in logs_of(clean, seed, trials=3) for log in trial]
    disturbed = [log for log in logs if log > 1e-9]
    assert min(logs) > -1e-9
    assert all(math.log(1.05) - 1e-9 <= log <= math.log1p(SLOWEST) + 1e-9 for log in disturbed)
    contaminated = bool(noise.bursts or noise.each or noise.trials) and noise.side != "answer"
    assert bool(disturbed) is contaminated


def by_kind(trial: Trial, kind: CycleKind, *, accepted: bool) -> int:
    return sum(c.cycle_kind is kind and c.accepted is accepted for c in trial.cycles)


@pytest.mark.parametrize("name", ["restless, CPU", "reference, GPU", "quiet, GPU"])
def test_a_study_runs_its_trials_as_a_child_does(name: str) -> None:
    courses = [run(NOISES[name], 1.0, np.random.default_rng(seed)) for seed in range(8)]
    for course in courses:
        kinds = Counter(trial.kind for trial in course.trials)
        assert [kinds[kind] for kind in (TrialKind.BASELINE, TrialKind.SEARCH)] == [1, SEARCHED]
        rounds = {trial.pair for trial in course.trials} - {None}
        assert rounds == set(range(len(course.statements) - 1))
        assert 2 * len(rounds) - 1 <= kinds[TrialKind.CONFIRM] <= 2 * ROUNDS * TRIES
        assert [trial.number for trial in course.trials] == list(range(len(course.trials)))
        for trial in course.trials:
            assert by_kind(trial, CycleKind.RECORDED, accepted=True) == 3
            assert sum(not c.accepted for c in trial.cycles) <= trial.protocol.max_repeats
            assert [c.index for c in trial.cycles] == list(range(len(trial.cycles)))
            assert trial.on_gpu is name.endswith("GPU")
    cycles = [cycle for course in courses for cycle in course.cycles]
    disturbed = name.startswith("restless")
    assert {c.accepted for c in cycles} == ({True, False} if disturbed else {True})
    assert any(c.noisy for c in cycles) is disturbed


def test_a_configuration_is_as_fast_as_it_is_told() -> None:
    study = Study(EVEN, 2.0, np.random.default_rng(0))
    for configuration in (study.baseline, study.others[0]):
        study.measure(TrialKind.SEARCH, configuration, Protocol())
    slow, fast = (trial.tokens_per_hour for trial in study.trials)
    assert slow is not None
    assert fast == pytest.approx(2.0 * slow)


def course(*statements: Statement | None) -> Course:
    return Course(run(EVEN, 1.0, np.random.default_rng(0)).trials, statements)


def test_shares_are_counted_by_looks_and_what_a_study_has_decided_stands() -> None:
    wrong, right = Statement(0.3, 0.1, 0.5, True), Statement(0.0, -0.2, 0.2, False)
    row = scoring.row_of("made", 1.0, [course(right, wrong), course(wrong, *[right] * 5), course(None, *[right] * 5)])
    shares = {key: row[key] for key in row if key.startswith(("covers", "faster", "undecided", "stated_0"))}
    third, two = pytest.approx(1 / 3, abs=1e-4), pytest.approx(2 / 3, abs=1e-4)
    assert shares == {
        "stated_0": two, "covers_0": 0.5, "faster_0": third, "undecided_0": two, "faster_at_any_look": third,
        **{f"{name}_{k}": value for k in (1, 2, 3, 5) for name, value in
           (("covers", two), ("faster", third), ("undecided", two))},
    }  # fmt: skip
    assert row["rounds"] == pytest.approx(11 / 3, abs=1e-4)
    assert row["half_width_1"] == pytest.approx(0.2)
    assert row["stated_over_true_0"] == pytest.approx((1.0 + math.exp(0.3)) / 2, abs=1e-4)


def test_coverage_and_power_on_a_small_fixed_set() -> None:
    """Twenty studies of each ratio on a quiet machine: binomial bounds of 95 % coverage and 90 % power."""
    rows = {row["ratio"]: row for row in scoring.scored("quiet, CPU", 20, 3)}
    assert set(rows) == set(scoring.RATIOS)
    for row in rows.values():
        assert all(float(row[f"covers_{k}"] or 0.0) >= 0.8 for k in (1, 2, 3, 5))
    assert float(rows[1.0]["faster_at_any_look"] or 0.0) <= 0.1
    assert float(rows[2.33]["faster_1"] or 0.0) >= 0.9
    widths = [rows[1.0][f"half_width_{k}"] or 0.0 for k in (1, 2, 3)]
    assert widths == sorted(widths, reverse=True)


def test_an_interval_that_is_too_narrow_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = product.stated

    def narrow(*arguments: object) -> Statement | None:
        one = stated(*arguments)  # type: ignore[arg-type]
        return one and one._replace(low=one.middle - 0.01, high=one.middle + 0.01)

    monkeypatch.setattr(product, "stated", narrow)
    row = next(scoring.scored("restless, CPU", 30, 0))
    assert all(float(row[f"covers_{k}"] or 0.0) < 0.5 for k in scoring.LOOKS)


def test_a_study_draws_the_same_whatever_else_is_asked() -> None:
    first, again, other = (next(scoring.scored("restless, CPU", 2, seed)) for seed in (5, 5, 6))
    assert first == again != other
