"""Verdicts, kinds, peaks and shares of a trial: each has one definition, whoever shows it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.filters import SORTS
from autotune.charts.memory_dots import by_phase
from autotune.documents.study import trial_json
from autotune.domain import CycleKind, FailureReason, Outcome, Peaks, Pool, Trial, TrialKind, TrialState
from autotune.recommendation.recommend import row_of
from tests.support import factories
from tests.support.factories import GIB


def _with_cycles(*spent: dict[str, float], **changes: object) -> Trial:
    cycles = tuple(factories.cycle(i, seconds=max(1e-9, sum(p.values())), phases=p) for i, p in enumerate(spent))
    return factories.finished(1, cycles=0).with_(cycles=tuple(replace(c, **changes) for c in cycles))  # type: ignore[arg-type]


def test_what_the_machine_or_a_person_ended_blames_no_configuration() -> None:
    innocent = {reason for reason in FailureReason if not reason.blames_configuration}
    assert innocent == {FailureReason.INFRA, FailureReason.CANCELLED, FailureReason.REWARD_ERROR}
    for reason in FailureReason:
        ended = factories.failed(1, factories.failure(reason))
        assert ended.inconclusive == (reason in innocent), reason
    assert not factories.finished(1).inconclusive
    assert not factories.trial(1, state=TrialState.RUNNING).inconclusive
    assert not Outcome().inconclusive


def test_the_search_itself_runs_the_baseline_and_what_it_proposes() -> None:
    assert {kind for kind in TrialKind if kind.is_searched} == {TrialKind.BASELINE, TrialKind.SEARCH}


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(("generate", "update", "idle", "wait")), st.floats(0, 1e6)), max_size=5)
)
def test_shares_sum_to_one_and_come_largest_first(spent: list[dict[str, float]]) -> None:
    trial = _with_cycles(*spent)
    found = trial.phase_shares
    if sum(sum(c.phases.values()) for c in trial.speed_cycles()) > 0:
        assert math.isclose(sum(found.values()), 1.0)
    else:
        assert found == {}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_long_cycles_weigh_more() -> None:
    trial = _with_cycles({"update": 90.0}, {"generate": 10.0})
    assert trial.phase_shares == {"update": 0.9, "generate": 0.1}


@pytest.mark.parametrize(
    "changes", [{"accepted": False}, {"rank": 1}, {"cycle_kind": CycleKind.NATURAL}, {"cycle_kind": CycleKind.WARMUP}]
)
def test_only_speed_cycles_count(changes: dict[str, object]) -> None:
    assert _with_cycles({"update": 1.0}, **changes).phase_shares == {}


def test_the_host_peak_is_the_highest_anyone_saw() -> None:
    seen = factories.finished(1, watchdog_peak=GIB)
    assert seen.host_peak == 2 * GIB, "a cycle saw more than the watchdog"
    assert seen.with_(watchdog_peak=3 * GIB).host_peak == 3 * GIB
    assert seen.with_(watchdog_peak=None, cycles=()).host_peak is None


def test_the_drivers_figure_goes_before_the_allocators() -> None:
    everything = Peaks(device_allocated=1, device_reserved=5, device_used=3)
    trial = _with_cycles({"update": 1.0}, peaks={"update": everything, "cycle": Peaks(device_used=2)})
    assert trial.device_peak == 3
    assert _with_cycles({"update": 1.0}, peaks={"cycle": replace(everything, device_used=None)}).device_peak == 5
    assert _with_cycles({"update": 1.0}, peaks={"cycle": Peaks(device_allocated=1)}).device_peak == 1
    assert factories.finished(1).device_peak is None


def test_figures_of_different_kinds_are_not_compared() -> None:
    """What the allocator reserved in one phase says nothing beside what the driver saw in another."""
    trial = _with_cycles({"update": 1.0}, peaks={"update": Peaks(device_used=7), "generate": Peaks(device_reserved=12)})
    assert trial.device_peak == 7
    assert trial.peaks_by_phase(Pool.DEVICE) == {"update": 7}


def test_a_pool_has_the_peak_of_its_name() -> None:
    trial = _with_cycles({"update": 1.0}, peaks={"update": Peaks(host=4, device_used=7)}).with_(watchdog_peak=3)
    assert (trial.peak(Pool.HOST), trial.peak(Pool.DEVICE), trial.peak(Pool.ROLLOUT_CACHE)) == (4, 7, None)
    assert trial.peaks_by_phase(Pool.ROLLOUT_CACHE) == {}


@pytest.mark.parametrize(
    ("peaks", "watchdog", "host", "device"),
    [
        ({"update": Peaks(device_used=7), "generate": Peaks(device_reserved=12)}, 100, 100, 7),
        ({"update": Peaks(device_allocated=5)}, 100, 100, 5),
        ({"update": Peaks(host=300, device_used=7)}, 100, 300, 7),
    ],
)
def test_every_screen_shows_the_same_peaks(peaks: dict[str, Peaks], watchdog: int, host: int, device: int) -> None:
    cycles = tuple(replace(c, peaks=peaks) for c in factories.finished(0).cycles)
    trial = factories.finished(0, cycles=3).with_(cycles=cycles, watchdog_peak=watchdog)
    document = trial_json(trial, trial.configuration)
    assert (document["host_peak_bytes"], document["device_peak_bytes"]) == (host, device)
    row = row_of(factories.study_spec(), [trial], trial.configuration)
    assert row is not None
    assert (row.host_peak, row.device_peak) == (host, device)
    assert SORTS["peak_bytes"][1](trial) == (device, 0)
    assert max(by_phase(trial, Pool.DEVICE).values()) == device
