from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.running.proc import Stat
from autotune.running.watchdog import Probes, TreeMemory

GIB = 1 << 30


@dataclass
class Machine:
    """Processes with memory that tests set; reading PSS costs ``price`` CPU seconds."""

    price: float = 0.01
    now: float = 0.0
    cpu: float = 0.0
    reads: int = 0
    anonymous: dict[int, int] = field(default_factory=dict)
    shared: dict[int, int] = field(default_factory=dict)

    def probes(self) -> Probes:
        return Probes(
            resident=lambda pid: (self.anonymous[pid] + self.shared.get(pid, 0), self.shared.get(pid, 0)),
            proportional=self.exact,
            monotonic=lambda: self.now,
            cpu=lambda: self.cpu,
        )

    def exact(self, pid: int) -> int:
        self.reads += 1
        self.cpu += self.price
        sharers = sum(1 for size in self.shared.values() if size)
        return self.anonymous[pid] + (self.shared.get(pid, 0) // sharers if sharers else 0)

    def members(self) -> list[Stat]:
        return [Stat(pid, 1, pid, "R", 100 + pid, 0) for pid in self.anonymous]

    def step(self, memory: TreeMemory, limit: int | None = None, seconds: float = 0.1) -> int:
        self.now += seconds
        return memory.measure(self.members(), limit)


@pytest.fixture
def machine() -> Machine:
    return Machine(anonymous={1: GIB})


def test_exact_readings_stay_within_their_share_of_a_core(machine: Machine) -> None:
    memory = TreeMemory(duty=0.01, burst_s=0.05, probes=machine.probes())
    for step in range(600):
        machine.anonymous[1] += GIB // 20 if step % 2 else -GIB // 25
        machine.step(memory)
    assert machine.cpu <= 0.01 * machine.now + 0.05 + machine.price


def test_growth_between_exact_readings_is_seen_at_once(machine: Machine) -> None:
    memory = TreeMemory(duty=0.0, burst_s=0.0, probes=machine.probes())
    machine.step(memory)
    machine.price = 1.0
    reads = machine.reads
    machine.anonymous[1] = 3 * GIB
    assert machine.step(memory) == 3 * GIB
    machine.anonymous[1] = GIB
    assert machine.step(memory) == GIB
    assert memory.peak == 3 * GIB
    assert machine.reads - reads <= 2


@pytest.mark.parametrize(("left", "counted"), [(0, GIB), (2 * GIB, 3 * GIB)])
def test_a_helper_that_ended_while_it_was_read_holds_nothing(machine: Machine, left: int, counted: int) -> None:
    """A fork of the trial, gone after milliseconds, once counted with all it had shared: an OOM at half the limit.

    One that goes on but whose PSS may not be read counts whole.
    """
    machine.anonymous[2] = 2 * GIB
    probes = machine.probes()

    def proportional(pid: int) -> int | None:
        if pid == 1:
            return machine.exact(pid)
        machine.anonymous[2] = left
        return None

    memory = TreeMemory(probes=replace(probes, proportional=proportional))
    assert machine.step(memory, limit=2 * GIB) == counted


@given(size=st.integers(0, 8 * GIB), limit=st.integers(1, 8 * GIB), shared=st.integers(0, 4 * GIB))
def test_no_sample_is_above_the_limit_without_an_exact_reading(size: int, limit: int, shared: int) -> None:
    machine = Machine(anonymous={1: GIB, 2: GIB})
    memory = TreeMemory(duty=0.0, burst_s=0.0, probes=machine.probes())
    machine.step(memory)
    machine.anonymous[2], machine.shared = size, {1: shared, 2: shared}
    true = GIB + size + 2 * (shared // 2 if shared else 0)
    measured = machine.step(memory, limit)
    if true > limit:
        assert measured == true
    else:
        assert measured <= limit


def test_a_fork_is_not_counted_before_it_is_read(machine: Machine) -> None:
    """Its pages are its parent's; the peak must not double for a moment."""
    memory = TreeMemory(duty=0.0, burst_s=0.0, probes=machine.probes())
    machine.step(memory)
    machine.price = 1.0
    machine.step(memory, seconds=0.1)
    memory._credit = -1.0
    machine.anonymous[2] = GIB
    machine.step(memory)
    assert memory.peak == GIB


def test_a_reused_process_id_is_another_process(machine: Machine) -> None:
    memory = TreeMemory(duty=0.0, burst_s=0.0, probes=machine.probes())
    machine.step(memory)
    memory._credit = -1.0
    machine.now += 0.1
    other = [Stat(1, 1, 1, "R", 999, 0)]
    machine.anonymous[1] = 5 * GIB
    assert memory.measure(other, limit=2 * GIB) == 5 * GIB, "above the limit it is read, not guessed from the old one"


def test_where_pss_cannot_be_read_the_resident_size_stands_in(machine: Machine) -> None:
    probes = Probes(lambda pid: (7, 2), lambda pid: None, lambda: machine.now, lambda: 0.0)
    assert TreeMemory(probes=probes).measure(machine.members()) == 7


def test_pages_that_count_as_those_of_a_process_outside_are_the_trees(machine: Machine) -> None:
    """Also between two exact readings, when they are not asked for."""
    asked = []

    def share() -> int:
        asked.append(machine.now)
        return GIB // 2

    memory = TreeMemory(duty=0.0, burst_s=0.0, probes=machine.probes(), shared_bytes=share)
    assert machine.step(memory) == GIB + GIB // 2
    memory._credit = -1.0
    machine.anonymous[1] += GIB // 8
    assert machine.step(memory) == GIB + GIB // 2 + GIB // 8
    assert len(asked) == 1
    assert machine.step(memory, limit=GIB) == GIB + GIB // 2 + GIB // 8
    assert len(asked) == 2
