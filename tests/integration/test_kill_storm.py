"""Twenty real trials of vLLM and of two torchrun ranks, half of them killed at random moments: nothing is left."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autotune.domain import Configuration, FailureReason, Protocol, Resources, TrialKind
from autotune.frameworks import framework_named
from autotune.ports import Assignment, RunReport
from autotune.running.local import LocalRunner
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.support import factories
from tests.support.fakes import FakeStop
from tests.support.trl_trials import LENGTHS, PLAIN, build_tiny, reward_file, tiny_workload, training_python

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.trl,
    pytest.mark.full,
    pytest.mark.alone,
    pytest.mark.timeout(1800),
]

HOME = f"storm-{os.getpid()}"
TRIALS = 20
PROTOCOL = Protocol(warmup=1, natural=0, recorded=1, lengths=LENGTHS, outside_cpu_limit=9.0)
KNOBS = {"micro_batch_size": 4, "num_generations": 4, "gradient_checkpointing": False, "precision": "fp32"}
ENGINE = {"rollout_engine": "vllm", "max_model_len": 128, "kv_cache_memory_bytes": 32 << 20}
RANKS = {"rollout_engine": "transformers", "zero_stage": 2}
MOMENTS = (0.03, 0.85)
"""Of what an undisturbed trial of the kind takes: from before the imports are done to the last cycles."""


def assignment(directory: Path, tiny: Path, number: int, reward: Path) -> Assignment:
    """vLLM and two ranks in turn."""
    ranks = number % 2
    knobs = Configuration({**KNOBS, **(RANKS if ranks else ENGINE)})
    spec = factories.study_spec(
        baseline=knobs,
        workload=tiny_workload(tiny, reward_file(reward, PLAIN)),
        resources=Resources(cpu_cores=2, framework="trl", rows_per_update=16, cpu_ranks=2 if ranks else 1),
        memory_limit=None,
        python=training_python(),
    )
    trial = factories.trial(
        number, kind=TrialKind.SEARCH, configuration=knobs, protocol=PROTOCOL, rows_per_update=16, attempt=1
    )
    return Assignment(replace(factories.study(), spec=spec), trial, directory, 300.0)


def listening() -> set[tuple[str, int]]:
    """Sockets that listen, of any process here."""
    return {
        (c.laddr.ip, c.laddr.port) for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN and c.laddr
    }


def segments() -> set[str]:
    """Shared memory and semaphores by name."""
    return {entry.name for entry in os.scandir("/dev/shm")}


def kill_one(moment: float, chance: random.Random, stop: FakeStop, done: threading.Event) -> None:
    """At the moment: one process of the tree, whichever, or the user's second Ctrl-C."""
    if done.wait(moment):
        return
    found = tagged(HOME)
    if not found or chance.random() < 0.3:
        stop.level = 2
        return
    try:
        os.kill(chance.choice(found), signal.SIGKILL)
    except ProcessLookupError:
        stop.level = 2


def test_nothing_is_left_of_twenty_trials_half_of_them_killed(tmp_path: Path) -> None:
    tiny, chance = build_tiny(tmp_path / "tiny"), random.Random(20)
    before = listening(), segments()
    reports: list[tuple[bool, RunReport]] = []
    whole_s: dict[int, float] = {}
    for number in range(TRIALS):
        killed = number % 4 >= 2
        stop, done = FakeStop(), threading.Event()
        moment = whole_s[number % 2] * chance.uniform(*MOMENTS) if killed else 3600.0
        killer = threading.Thread(target=kill_one, args=(moment, chance, stop, done))
        killer.start()
        runner = LocalRunner(training_python(), framework_named("trl"), HOME, RealClock())
        wanted = assignment(tmp_path / str(number), tiny, number, tmp_path / "reward")
        reports.append((killed, runner.run(wanted, Seen(), stop)))
        done.set()
        killer.join()
        if not killed:
            whole_s[number % 2] = reports[-1][1].seconds
        assert tagged(HOME) == []
        assert reports[-1][1].quarantined == ()
    assert left_over(before) == (set(), set())
    spared = [report.outcome for killed, report in reports if not killed]
    assert [outcome.sentence() for outcome in spared if not outcome.ok] == []
    ended = [report.outcome for killed, report in reports if killed]
    assert len(ended) == TRIALS // 2
    assert sum(not outcome.ok for outcome in ended) >= TRIALS // 4, "hardly any was killed before it had ended"
    known = (FailureReason.CRASH, FailureReason.CANCELLED, FailureReason.INFRA)
    assert [outcome.sentence() for outcome in ended if not (outcome.ok or outcome.reason in known)] == []


def left_over(before: tuple[set[tuple[str, int]], set[str]]) -> tuple[set[tuple[str, int]], set[str]]:
    """Ports and segments that were not there before; what others on the machine open for a moment goes again."""
    for _ in range(20):
        left = listening() - before[0], segments() - before[1]
        if left == (set(), set()):
            return left
        time.sleep(0.5)
    return left
