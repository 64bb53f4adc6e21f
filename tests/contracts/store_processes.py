"""What a ``Store`` must do when several processes, or several threads, use one database.

A test class inherits ``SharedStoreSuite`` and provides the fixture ``address`` of a database that does not exist yet.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from autotune.domain import Outcome, TrialState
from autotune.errors import StudyBusyError
from autotune.store import open_store
from tests.support import factories as make
from tests.support.waiting import PATIENCE_S

__all__ = ["SharedStoreSuite"]

FORKED = multiprocessing.get_context("forkserver")
"""Each process is forked from one that has imported what they need, which takes longest, and has opened nothing."""
FORKED.set_forkserver_preload([__name__, "autotune.wiring"])


def write_trials(address: str, gate: Connection, count: int) -> None:
    """Add, run and finish ``count`` trials; wait at the gate first."""
    store = open_store(address)
    gate.send("ready")
    gate.recv()
    for _ in range(count):
        number = store.add_trial(1, make.draft(), 1.0).number
        store.start_attempt(1, number, 2.0)
        store.add_cycle(1, number, 1, make.cycle(0))
        store.finish_trial(1, number, TrialState.COMPLETE, Outcome(), 3.0, float(os.getpid()), None)
        gate.send(number)
    store.close()


def write_cycles(address: str, gate: Connection, first: int) -> None:
    """Add cycles to trial 0 for ever, saying the index of each one that was stored."""
    store = open_store(address)
    index = first
    while True:
        store.add_cycle(1, 0, 1, make.cycle(index))
        gate.send(index)
        index += 1


def create_study(address: str, gate: Connection, name: str) -> None:
    """Wait at the gate, then be one of the first to open the database."""
    gate.send("ready")
    gate.recv()
    store = open_store(address)
    store.create_study(make.study_spec(name), 1.0)
    store.close()


def hold_lock(address: str, gate: Connection, study_id: int) -> None:
    """Hold a study until killed."""
    with open_store(address).lock(study_id):
        gate.send("held")
        gate.recv()


def race_for_lock(address: str, gate: Connection, study_id: int) -> None:
    """Try to take a study as soon as the gate opens; hold it until told."""
    store = open_store(address)
    gate.send("ready")
    gate.recv()
    try:
        with store.lock(study_id):
            gate.send("held")
            gate.recv()
    except StudyBusyError as error:
        gate.send(str(error))


@contextmanager
def running(target: Any, address: str, argument: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process of its own, killed when the block ends."""
    ours, theirs = FORKED.Pipe()
    process = FORKED.Process(target=target, args=(address, theirs, argument), daemon=True)
    try:
        process.start()
    except OSError:  # another test of this worker has ended the server of forks or its pipe; a new one is started
        vars(forkserver._forkserver).update(_forkserver_pid=None, _forkserver_address=None, _forkserver_alive_fd=None)
        process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join(PATIENCE_S)
        ours.close()


def received(gate: Connection) -> Any:
    """What the process says next."""
    assert gate.poll(PATIENCE_S), "the process said nothing"
    return gate.recv()


def remaining(gate: Connection) -> list[Any]:
    """What a dead process had still said before."""
    said = []
    try:
        while gate.poll(0):
            said.append(gate.recv())
    except (EOFError, OSError):
        pass
    return said


class SharedStoreSuite:
    def check_integrity(self, address: str) -> None:
        """Fails if the database is damaged; a subclass whose database can tell overrides it."""

    def test_everything_is_there_after_opening_again(self, address: str) -> None:
        store = open_store(address)
        study = store.create_study(make.study_spec(), 1.0)
        store.add_trial(1, make.draft(), 1.0)
        before = store.study("first"), store.trials(study.id)
        store.close()
        again = open_store(address)
        assert (again.study("first"), again.trials(study.id)) == before
        again.close()

    def test_two_writing_processes_lose_nothing_and_leave_no_gap(self, address: str) -> None:
        store, count = open_store(address), 50
        store.create_study(make.study_spec(), 1.0)
        with running(write_trials, address, count) as (a, gate_a), running(write_trials, address, count) as (b, gate_b):
            for gate in (gate_a, gate_b):
                assert received(gate) == "ready"
            for gate in (gate_a, gate_b):
                gate.send("go")
            numbers = {p.pid: [received(gate) for _ in range(count)] for p, gate in ((a, gate_a), (b, gate_b))}
        trials = store.trials(1)
        assert [t.number for t in trials] == list(range(2 * count))
        assert all(t.state is TrialState.COMPLETE and t.cycles == (make.cycle(0),) for t in trials)
        for pid, mine in numbers.items():
            assert [t.number for t in trials if t.seconds == pid] == mine
        store.close()

    def test_threads_of_one_store_lose_nothing_and_leave_no_gap(self, address: str) -> None:
        store = open_store(address)
        store.create_study(make.study_spec(), 1.0)
        with ThreadPoolExecutor(4) as pool:
            numbers = list(pool.map(lambda _: store.add_trial(1, make.draft(), 1.0).number, range(40)))
        assert sorted(numbers) == [t.number for t in store.trials(1)] == list(range(40))
        store.close()

    def test_every_acknowledged_cycle_survives_a_killed_writer(self, address: str) -> None:
        store = open_store(address)
        store.create_study(make.study_spec(), 1.0)
        store.add_trial(1, make.draft(), 1.0)
        store.start_attempt(1, 0, 1.0)
        acknowledged: list[int] = []
        for patience in (1, 7, 23, 4):
            with running(write_cycles, address, 1000 * patience) as (process, gate):
                acknowledged += [received(gate) for _ in range(patience)]
                assert process.pid is not None
                os.kill(process.pid, signal.SIGKILL)
                process.join(PATIENCE_S)
                acknowledged += remaining(gate)
            cycles = {c.index: c for c in store.trial(1, 0).cycles}
            assert set(acknowledged) <= set(cycles)
            assert all(cycle == make.cycle(index) for index, cycle in cycles.items())
            self.check_integrity(address)
        store.close()

    def test_a_reader_sees_whole_changes_while_another_writes(self, address: str) -> None:
        store = open_store(address)
        store.create_study(make.study_spec(), 1.0)
        with running(write_trials, address, 25) as (_, gate):
            assert received(gate) == "ready"
            gate.send("go")
            sizes: list[int] = []
            while not sizes or sizes[-1] < 25:
                trials = store.trials(1)
                assert [t.number for t in trials] == list(range(len(trials)))
                assert all(t.cycles == (make.cycle(0),) for t in trials if t.state is TrialState.COMPLETE)
                assert all(t.seconds is None for t in trials if t.state is not TrialState.COMPLETE)
                sizes.append(len(trials))
            assert sizes == sorted(sizes)
        store.close()

    def test_the_first_use_may_be_a_race(self, address: str) -> None:
        names = ["a", "b", "c"]
        with (
            running(create_study, address, "a") as (first, one),
            running(create_study, address, "b") as (second, two),
            running(create_study, address, "c") as (third, three),
        ):
            for gate in (one, two, three):
                assert received(gate) == "ready"
            for gate in (one, two, three):
                gate.send("go")
            for process in (first, second, third):
                process.join(PATIENCE_S)
                assert process.exitcode == 0
        store = open_store(address)
        assert sorted(s.spec.name for s in store.studies()) == names
        store.close()

    def test_the_first_use_may_be_a_race_of_threads(self, address: str) -> None:
        barrier = threading.Barrier(4)

        def create(name: str) -> int:
            barrier.wait(PATIENCE_S)
            store = open_store(address)
            study = store.create_study(make.study_spec(name), 1.0).id
            store.close()
            return study

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(create, "abcd")) == [1, 2, 3, 4]

    def test_a_lock_holds_between_processes_and_ends_with_its_holder(self, address: str) -> None:
        store = open_store(address)
        study = store.create_study(make.study_spec(), 1.0).id
        with running(hold_lock, address, study) as (process, gate):
            assert received(gate) == "held"
            assert store.is_locked(study)
            with pytest.raises(StudyBusyError, match="first"), store.lock(study):
                pytest.fail("two tuners hold one study")
            store.add_trial(study, make.draft(), 1.0)
            process.kill()
            process.join(PATIENCE_S)
            assert not store.is_locked(study)
            with store.lock(study):
                pass
        store.close()

    def test_of_tuners_that_race_for_a_study_one_runs_and_the_others_name_it(self, address: str) -> None:
        store = open_store(address)
        study = store.create_study(make.study_spec(), 1.0).id
        store.close()
        with ExitStack() as stack:
            racers = [stack.enter_context(running(race_for_lock, address, study)) for _ in range(3)]
            for _, gate in racers:
                assert received(gate) == "ready"
            for _, gate in racers:
                gate.send("go")
            said = [(process.pid, received(gate)) for process, gate in racers]
        [winner] = [pid for pid, what in said if what == "held"]
        for pid, what in said:
            assert pid == winner or f"process {winner} on " in what
