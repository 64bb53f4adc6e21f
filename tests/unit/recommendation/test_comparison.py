"""Two trials or two studies beside each other: what may be concluded, and what must be said first."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.domain import TrialKind
from autotune.recommendation.comparison import compare_studies, compare_trials, differences
from autotune.recommendation.reading import StudyReading
from tests.support import factories as f

FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)


def _record(trials: list, **changes: object) -> StudyReading:  # type: ignore[type-arg]
    study = f.study(spec=f.study_spec(**changes))  # type: ignore[arg-type]
    return StudyReading(study, trials, fingerprint=f.fingerprint())


def _measured(seconds: list[float], number: int, **changes: object):  # type: ignore[no-untyped-def]
    return f.finished(number, cycle_seconds=seconds, **changes)


BASE = _measured([9.9, 10.0, 10.1], 0)
FAST = _measured([4.95, 5.0, 5.05], 1, configuration=FASTER)


def test_a_difference_within_the_noise_is_not_decided() -> None:
    wild = [_measured([5.0, 10.0, 15.0], 0), _measured([4.8, 9.6, 14.4], 1, configuration=FASTER)]
    found = compare_trials(_record(wild), *wild)
    assert found.ratio.low < 0 < found.ratio.high
    assert not found.decided


def test_one_cycle_each_decides_nothing() -> None:
    single = [_measured([10.0], 0), _measured([5.0], 1, configuration=FASTER)]
    found = compare_trials(_record(single), *single)
    assert found.ratio is not None
    assert not found.decided


def test_phases_are_seconds_of_a_cycle_and_sum_to_it() -> None:
    side = compare_trials(_record([BASE, FAST]), BASE, FAST).a
    assert side.cycle_s == pytest.approx(10.0)
    assert sum(side.phases.values()) == pytest.approx(side.cycle_s)
    assert side.startup == {"import": 2.0, "load": 1.5, "first_batch": 3.0}
    assert side.host_peak == 5 * f.GIB // 2


def test_trials_of_other_batches_are_not_only_other_knobs() -> None:
    other = _measured([5.0, 5.1], 1, configuration=FASTER, rows_per_update=16)
    assert not compare_trials(_record([BASE, other]), BASE, other).comparable


def test_trials_at_other_lengths_are_not_only_other_knobs() -> None:
    warm = _measured([5.0, 5.1], 1, configuration=f.configuration(temperature=2.0))
    warm = warm.with_(cycles=tuple(replace(c, lengths=(128,) * f.ROWS) for c in warm.cycles))
    assert compare_trials(_record([BASE, warm]), BASE, warm).differs == (
        "completion lengths: mean 56, p95 128 -> mean 128, p95 128",
    )


def test_two_studies_by_their_answers_and_baselines() -> None:
    confirm = _measured([6.0, 6.1, 6.0], 2, configuration=FASTER, kind=TrialKind.CONFIRM, pair=0)
    a, b = _record([BASE, FAST], name="one"), _record([BASE, FAST, confirm], name="two")
    found = compare_studies(a, b)
    assert found.comparable
    assert (found.a.label, found.b.label) == ("one", "two")
    assert found.b.trials == (2,), "a confirmed figure is not mixed with the search trial it was picked for"
    assert found.ratio.value == pytest.approx(5.0 / 6.03 - 1, abs=0.01)
    assert [side.cycle_s for side in found.baselines] == [pytest.approx(10.0)] * 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda r: replace(r, fingerprint=f.fingerprint(hardware={"cpu": "another"})),
            "hardware.cpu: example -> another",
        ),
        (lambda r: replace(r, fingerprint=f.fingerprint(software={"trl": "1.17.0"})), "software.trl: 1.16.0 -> 1.17.0"),
        (lambda r: replace(r, fingerprint=None), "fingerprint: known of one study only"),
        (lambda r: _record([BASE], workload=f.workload(model="/models/large")), "workload.model: /models/small"),
        (lambda r: _record([BASE], workload=f.workload(prompts_sha256="6" * 64)), "workload.prompts_sha256"),
        (lambda r: _record([BASE], workload=f.workload(passthrough={"beta": 0.1})), "workload.passthrough.beta: 0.0"),
        (lambda r: _record([BASE], memory_limit=None), "memory limit: 8.00 GiB -> none"),
        (lambda r: replace(r, study=replace(r.study, lengths=(8,) * 8)), "recorded lengths: mean 56.0 tokens"),
    ],
)
def test_whatever_moves_the_figures_of_two_studies_is_said(change, said: str) -> None:  # type: ignore[no-untyped-def]
    base = _record([BASE])
    found = differences(base, change(base))
    assert any(line.startswith(said) for line in found), found
    assert not compare_studies(base, change(base)).comparable


def test_where_the_prompts_lie_makes_no_difference() -> None:
    assert differences(_record([BASE]), _record([BASE], workload=f.workload(prompts="/elsewhere"))) == ()


def test_studies_without_a_feasible_trial_compare_without_a_ratio() -> None:
    found = compare_studies(_record([f.failed(0, kind=TrialKind.BASELINE)]), _record([]))
    assert found.ratio is None
    assert found.b.outcome == "not run"
    assert math.isfinite(sum(found.a.startup.values()))
