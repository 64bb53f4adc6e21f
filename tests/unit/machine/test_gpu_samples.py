"""NVML's figures belong to the cycle and phase they fell into; on made-up samples and on a recorded H100."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import CycleRecord
from autotune.machine.gpu_samples import WHOLE, GpuSample, use_of
from autotune.machine.nvml import GpuReading
from tests.support import factories as make
from tests.support import recorded_gpu


def cycle(**phases: float) -> CycleRecord:
    """The fourth, from second 1000 on."""
    return make.cycle(4, seconds=sum(phases.values()), phases=phases, started=1000.0)


def sample(at: float, phase: str, index: int = 4, *readings: GpuReading, **said: float) -> GpuSample:
    return GpuSample(at, phase, index, readings or (GpuReading(**said),))


def test_a_sample_belongs_to_the_phase_it_was_taken_in() -> None:
    found = use_of(
        [
            sample(1000.2, "generate", busy=0.9),
            sample(1000.4, "generate", busy=0.7),
            sample(1001.5, "update", busy=0.3),
        ],
        cycle(generate=1.0, update=1.0),
    )
    assert {name: use.samples for name, use in found.items()} == {"generate": 2, "update": 1, WHOLE: 3}
    assert found["generate"].busy == pytest.approx(0.8)
    assert found["update"].busy == pytest.approx(0.3)
    assert found[WHOLE].busy == pytest.approx(1.9 / 3)


def test_what_lies_outside_the_cycle_or_in_another_one_does_not_count() -> None:
    """Between two cycles the mark still names the one before, while the clock guard's kernel keeps the GPU busy."""
    before = sample(999.9, "idle", 3, busy=1.0)
    after = sample(1002.1, "idle", 4, busy=1.0)
    following = sample(1001.9, "idle", 5, busy=1.0)
    inside = sample(1001.0, "update", busy=0.5)
    found = use_of([before, inside, following, after], cycle(update=2.0))
    assert {name: use.busy for name, use in found.items()} == {"update": 0.5, WHOLE: 0.5}
    assert use_of([before, after], cycle(update=2.0)) == {}
    assert use_of([], cycle(update=2.0)) == {}


def test_joules_are_the_counters_where_there_is_one_and_else_the_powers() -> None:
    counted = [sample(1000.0 + 0.5 * n, "update", joules=100.0 * n, watts=999.0) for n in range(5)]
    assert use_of(counted, cycle(update=2.0))["update"].joules == pytest.approx(400.0)
    samples = [sample(1000.0 + 0.5 * n, "update", watts=150.0) for n in range(5)]
    assert use_of(samples, cycle(update=2.0))["update"].joules == pytest.approx(300.0)


def test_several_gpus_share_their_means_and_add_their_sums() -> None:
    pair = [
        sample(
            1000.5 + n, "update", 4, GpuReading(busy=1.0, watts=300.0, celsius=70.0), GpuReading(busy=0.5, watts=100.0)
        )
        for n in range(2)
    ]
    use = use_of(pair, cycle(update=2.0))["update"]
    assert (use.busy, use.joules, use.celsius, use.samples) == (0.75, 800.0, 70.0, 2)


def test_a_sum_over_gpus_of_which_one_tells_nothing_is_not_known() -> None:
    pair = [
        sample(1000.0 + n, "update", 4, GpuReading(busy=1.0, pcie_sent=5.0 * n), GpuReading(busy=0.5)) for n in range(3)
    ]
    use = use_of(pair, cycle(update=2.0))["update"]
    assert (use.busy, use.pcie_sent, use.joules) == (0.75, None, None)


@given(
    grown=st.lists(st.floats(0, 1e9), min_size=2, max_size=30),
    phases=st.lists(st.sampled_from(["generate", "update"]), min_size=30, max_size=30),
)
def test_what_a_counter_grew_by_in_a_cycle_is_told_once(grown: list[float], phases: list[str]) -> None:
    """Evenly sampled from a cycle's beginning to its end, the whole cycle has exactly what the counter says."""
    every = 2.0 / (len(grown) - 1)
    total, samples = 0.0, []
    for place, more in enumerate(grown):
        total += more if place else 0.0
        at = min(1000.0 + place * every, 1002.0)
        samples.append(sample(at, phases[place], pcie_received=total))
    found = use_of(samples, cycle(generate=1.0, update=1.0))
    assert found[WHOLE].pcie_received == pytest.approx(total, rel=1e-6, abs=1e-3)
    assert found[WHOLE].samples == len(grown) == sum(found[p].samples for p in ("generate", "update") if p in found)


def test_a_recorded_h100_was_less_busy_in_the_cycles_that_took_longer() -> None:
    """Bounds as seen in the recording: 14 to 78 % busy in generation, 21 to 60 % in the update."""
    baseline = recorded_gpu.with_gpu(0)
    shares = {c.index: (c.gpu["generate"].busy or 0.0, c.gpu["update"].busy or 0.0) for c in baseline}
    assert all(0.14 <= generate <= 0.78 and 0.20 <= update <= 0.61 for generate, update in shares.values())
    slow, steady = baseline[1], baseline[5]
    assert slow.seconds > 2.5 * steady.seconds
    assert shares[steady.index][0] > 3 * shares[slow.index][0]
    work = [c.phases["update"] * shares[c.index][1] for c in baseline]
    assert max(work) < 1.4 * min(work), "the GPU's own seconds of an update hardly differ"


def test_a_recorded_h100_drew_what_its_meter_said() -> None:
    for number in (0, 1):
        for found in recorded_gpu.with_gpu(number):
            use = found.gpu[WHOLE]
            assert 140 <= use.joules / found.seconds <= 420, "watts"
            assert 1900 <= use.sm_mhz <= 1980
            assert use.pcie_sent is None
            assert set(found.gpu) <= {*found.phases, WHOLE}
