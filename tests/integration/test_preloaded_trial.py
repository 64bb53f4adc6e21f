"""Real trials forked from a process that has imported everything, beside the same ones started anew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from autotune.running.ending import Ending
from autotune.running.job import Graces, Job
from autotune.running.launch import Spawn, spawn
from autotune.running.preloaded import Preloads
from autotune.running.supervisor import Supervisor
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.trl_trials import PLAIN, START, Ran, reward_file, tiny_spec, training_python, write_spec

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.trl,
    pytest.mark.full,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]

HOME = f"preloaded-{os.getpid()}"
VLLM = {"rollout_engine": "vllm", "max_model_len": 1024, "kv_cache_memory_bytes": 64 << 20, "max_num_seqs": 16}
LEARNING = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}


@dataclass(frozen=True)
class Both:
    """Three of the same: started anew; forked first, when the imports are made; forked again."""

    started: tuple[Ran, Ending]
    first: tuple[Ran, Ending]
    second: tuple[Ran, Ending]


@pytest.fixture(scope="module", params=["transformers", "vllm"])
def both(tiny: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    knobs = VLLM if request.param == "vllm" else {}
    place = tiny / request.param
    spec = tiny_spec(tiny, reward_file(place, PLAIN), knobs=knobs, passthrough=LEARNING)
    preloads = Preloads()

    def run(name: str, number: int, starter: Spawn) -> tuple[Ran, Ending]:
        paths = write_spec(place / name, spec)
        argv = (training_python(), str(START), "trial", "--directory", str(paths.root))
        job = Job(argv, paths, f"autotune:{HOME}:1:{number}:1", deadline_s=400.0)
        ending = Supervisor(RealClock(), Graces(linger_s=120.0), spawn=starter).run(job, Seen(), FakeStop())
        assert ending.exit_code == 0, f"{ending}\n" + paths.log.read_text()[-3000:]
        return Ran(paths.root), ending

    try:
        yield Both(run("started", 0, spawn), run("first", 1, preloads.spawn), run("second", 2, preloads.spawn))
        assert preloads.take_notes() == ()
    finally:
        preloads.close()
        assert tagged(HOME) == []


def losses(ran: Ran) -> list[Any]:
    return [(cycle.cycle_kind, cycle.loss, cycle.grad_norm, cycle.lengths, cycle.reward_mean) for cycle in ran.cycles]


def test_what_is_learned_is_the_same_to_the_last_bit(both: Both) -> None:
    assert len(losses(both.started[0])) >= 4
    assert losses(both.started[0]) == losses(both.first[0]) == losses(both.second[0])


def test_nothing_is_imported_again(both: Both) -> None:
    parts = [{r.part.value: r.seconds for r in ran.records if r.kind == "startup"} for ran, _ in _all(both)]
    started, first, second = parts
    assert set(started) == set(first) == set(second)
    assert second["import"] < 0.1 * started["import"]
    assert first["spawn"] > 0.5 * started["import"], "whoever waits for the imports is told so"
    assert second["spawn"] < 0.1 * started["import"]


def test_a_forked_trial_counts_the_memory_a_started_one_does(both: Both) -> None:
    """By the tuner's watchdog and by the child's own meter; whoever else maps the same files meanwhile moves both."""
    (started, cold), *forked = _all(both)
    for ran, warm in forked:
        assert cold.host_peak is not None
        assert warm.host_peak == pytest.approx(cold.host_peak, rel=0.06)
        own = [max(c.peaks["cycle"].host or 0 for c in trial.cycles) for trial in (started, ran)]
        assert own[1] == pytest.approx(own[0], rel=0.06)


def _all(both: Both) -> tuple[tuple[Ran, Ending], ...]:
    return both.started, both.first, both.second
