"""The benchmark of intervals: what it draws from, and that its figures tell a good interval from a bad one."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from autotune.statistics import evidence
from autotune.statistics.noise import GPU_PROCESS, PROCESS, NoisePrior
from benchmarks.intervals import earlier, fitting, limits, report, scoring
from benchmarks.intervals.__main__ import main
from benchmarks.intervals.looks import looked
from benchmarks.intervals.recordings import Recording, recordings
from benchmarks.intervals.scoring import NEW, OLD, UNSEEN
from benchmarks.intervals.simulation import Noise, made, shape_of


@pytest.fixture(scope="module")
def found() -> list[Recording]:
    return recordings()


def test_every_recording_with_repeats_is_read(found: list[Recording]) -> None:
    names = [one.name for one in found]
    assert len(set(names)) == len(names) == 12
    assert [one.on_gpu for one in found] == [True, True, *[False] * 10]
    for one in found:
        assert one.variance >= one.cycles > 0.0
        assert all(abs(p.mean()) < 1e-9 and len(p) == 3 for p in one.patterns)
        assert math.sqrt(np.mean(one.processes**2)) == pytest.approx(math.sqrt(one.variance), rel=1e-6)


def test_the_constants_are_what_the_recordings_say(found: list[Recording]) -> None:
    for on_gpu, constant in ((False, PROCESS), (True, GPU_PROCESS)):
        fitted = fitting.presumed(found, on_gpu=on_gpu)
        assert math.sqrt(constant.variance) == pytest.approx(math.sqrt(fitted.variance), rel=0.05)


def test_a_recording_is_judged_by_the_others_alone(found: list[Recording]) -> None:
    restless = found[0]
    assert fitting.without(restless, found).variance < fitting.presumed(found, on_gpu=True).variance


def test_the_fit_finds_the_spread_of_made_up_recordings() -> None:
    def recording(spread: float) -> Recording:
        return Recording("made", False, np.zeros(2), (), np.zeros(1), spread**2 + 0.01**2, 50.0, 0.01**2)

    prior, _ = fitting.likeliest([recording(0.08)] * 6, 8.0)
    assert math.sqrt(prior.variance) == pytest.approx(0.08, rel=0.1)
    alike, unlike = ([recording(s) for s in spreads] for spreads in ([0.08] * 6, [0.02, 0.3] * 3))
    gain = [fitting.likeliest(some, 50.0)[1] - fitting.likeliest(some, 2.0)[1] for some in (alike, unlike)]
    assert gain[0] > 0.0 > gain[1], "many degrees for machines alike, few for unlike ones"


def test_a_study_is_what_it_says(found: list[Recording]) -> None:
    draw = np.random.default_rng(1)
    study = made(Noise(found[3], shape_of(found), draw), draw)
    for rounds in (1, 2, 3):
        gain = evidence.gain(study.until(rounds), study.leader, study.baseline)
        assert gain is not None
        assert gain.pairs == rounds
    assert study.leader != study.baseline


def test_coverage_and_power_on_a_small_fixed_set(found: list[Recording]) -> None:
    """A hundred studies with the noise of a CPU table: binomial bounds of 95 % coverage and 90 % power."""
    one = next(r for r in found if r.name == "search-cpu-14m-compiled")
    tallies = scoring.scored(one, found, 100, 3).tallies
    for rounds in (1, 2, 3):
        assert tallies[NEW, rounds].coverage >= 0.90
        assert tallies[UNSEEN, rounds].coverage >= 0.90
    assert tallies[NEW, 1].power >= 0.85
    assert tallies[NEW, 1].width < tallies[OLD, 1].width
    assert tallies[NEW, 1].width > tallies[NEW, 2].width > tallies[NEW, 3].width


def test_an_interval_that_presumes_too_little_is_found_out(found: list[Recording]) -> None:
    tally = scoring.Tally()
    one, draw = found[4], np.random.default_rng(2)
    noise = Noise(one, shape_of(found), draw)
    for _ in range(60):
        study = made(noise, draw)
        gain = evidence.gain(study.until(1), study.leader, study.baseline, NoisePrior(1e-4, 100.0))
        assert gain is not None
        middle, error = math.log1p(gain.value), 0.02
        tally.count(study.gain, middle - error, middle + error)
    assert tally.coverage < 0.5


def test_the_recorded_study_of_the_h100_is_proven_by_a_prior_that_has_not_seen_it(found: list[Recording]) -> None:
    again = {one.method: one.gain for one in scoring.recorded_studies(found)}
    assert again[UNSEEN].low > 0.0
    assert again[NEW].low > 0.0
    assert again[OLD].low < 0.0
    assert again[NEW].pairs == 1


def test_the_command_prints_plain_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--studies", "1", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["recordings"]) == 12
    assert set(said["recordings"]["defaults-cpu"]["1"]) == {NEW, UNSEEN, OLD, "known"}
    assert set(said["looks"]["defaults-cpu"]) == {"false", "without", "proven"}
    assert set(said["recorded_study"]) == {NEW, UNSEEN, OLD}


def test_it_tells_what_the_prior_is_fitted_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--fit"]) == 0
    assert capsys.readouterr().out.count("\n") == len(report.fit_table(recordings()).splitlines())


def test_a_level_for_later_looks_makes_fewer_studies_wrong(found: list[Recording]) -> None:
    noisy = next(one for one in found if one.name == "search-cpu-16m-engines")
    looks = looked(noisy, found, 60, 0)
    assert looks.false < looks.without
    assert looks.false <= 0.1 * looks.studies
    assert looks.proven == tuple(sorted(looks.proven)), "what is proven stays so"
    assert 0.8 * looks.provable < looks.proven[-1] <= looks.provable < looks.studies


def test_more_processes_prove_more_and_more_cycles_do_where_cycles_scatter(found: list[Recording]) -> None:
    shown = {(one.recording, one.cycles, one.processes): one.tallies for one in limits.limits(found, 12, 0)}
    assert len(shown) == 2 * len(limits.MANY) * len(limits.PROCESSES)
    today, known = (limits.WAYS.index(way) for way in (limits.TODAY, limits.EXACT))
    for (name, cycles, processes), tallies in shown.items():
        if processes == 2:
            assert tallies[today].width < shown[name, cycles, 1][today].width
        assert tallies[known].width < tallies[today].width
    steady, restless = (f"H100, 2026-11-{day}" for day in (22, 27))
    less = [shown[name, 12, 1][known].width / shown[name, 3, 1][known].width for name in (steady, restless)]
    assert less[1] < 0.8 < less[0] < 1.0


def test_earlier_studies_tell_the_spread_of_processes_the_better_the_more_there_are(found: list[Recording]) -> None:
    draw = np.random.default_rng(5)
    noise = Noise(found[0], shape_of(found), draw)
    studies = [made(noise, draw).trials for _ in range(12)]
    one, many = earlier.learnt(studies[:1]), earlier.learnt(studies)
    assert one is not None
    assert many is not None
    assert earlier.learnt([]) is None
    assert GPU_PROCESS.degrees < one.degrees < many.degrees <= earlier.SAME_MACHINE_DEGREES
    tallies = earlier.scored(found[0], found, 3, seed=1)
    assert [tally.studies for tally in tallies] == [3] * len(earlier.EARLIER)


def test_no_studies_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--studies", "0"])
    assert ended.value.code == 2
    assert "--studies: expected a number of at least 1" in capsys.readouterr().err
