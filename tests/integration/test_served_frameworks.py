"""Real trials of ms-swift and Open-R1 beside their own rollout servers, with vLLM on a CPU.

The servers are ``swift rollout`` and ``trl vllm-serve``, started as a trial's are. Weights pass through the store of
their group, because NCCL takes two GPUs (``tests/support/without_gpu.py``): on a GPU nothing of this has run yet.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration
from autotune.frameworks import framework_named
from autotune.ports import Assignment, Companion, Place
from autotune.running.local import LocalRunner
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.support import factories, openr1_trials, swift_trials
from tests.support.fakes import FakeStop
from tests.support.rollout_servers import check_trial
from tests.support.trl_trials import LENGTHS, PLAIN, reward_file, tiny_workload, training_python
from tests.support.without_gpu import SYNCED, overlay
from trainer.child.contract import CycleKind, NoteRecord, Protocol, StartupPart, StartupRecord, TrialSpec

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.frameworks, pytest.mark.timeout(1800)]
HOME = f"served-frameworks-{os.getpid()}"
VARIED = "return [float(sum(map(ord, str(c))) % 7) for c in completions]"
NATURAL = Protocol(warmup=1, natural=1, recorded=2, lengths=LENGTHS, outside_cpu_limit=9.0)
KNOBS: dict[str, Any] = {
    "micro_batch_size": 4,
    "gradient_accumulation_steps": 4,
    "num_generations": 4,
    "gradient_checkpointing": False,
    "precision": "fp32",
    "master_weights": "fp32",
    "attn_implementation": "sdpa",
    "optimizer": "adamw_torch",
    "rollout_engine": "vllm",
    "rollout_mode": "server",
    "rollout_gpus": 1,
    "enforce_eager": True,
}
OWN: dict[str, dict[str, Any]] = {
    "ms_swift": {"kv_cache_memory_bytes": 16 << 20, "max_num_seqs": 16, "dataloader_workers": 0},
    "open_r1": {"rollout_dtype": "fp32"},
}


class WithGpus:
    """A framework on a machine that passes for one with two GPUs."""

    def __init__(self, name: str) -> None:
        self._own = framework_named(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        return self._own.companion(assignment, spec, replace(place, gpus=("0", "1")))


def run(
    name: str, python: str, tiny: Path, folder: Path, checkout: str = "", score: str = PLAIN, **own: Any
) -> tuple[Any, Seen]:
    workload = tiny_workload(tiny, reward_file(folder, score), learning_rate=1e-3, **own)
    resources = factories.resources(framework=name)
    spec = factories.study_spec(
        framework=name, workload=workload, memory_limit=None, resources=resources, checkout=checkout
    )
    configuration = Configuration({**KNOBS, **OWN[name]})
    trial = factories.trial(configuration=configuration, protocol=NATURAL, rows_per_update=16, attempt=1)
    framework: Any = WithGpus(name)
    runner = LocalRunner(python, framework, HOME, RealClock())
    seen = Seen()
    return runner.run(Assignment(factories.study(spec=spec), trial, folder / "attempt", 1500), seen, FakeStop()), seen


def check(report: Any, seen: Seen) -> None:
    check_trial(report, seen)
    (natural,) = (cycle for cycle in seen.cycles() if cycle.cycle_kind is CycleKind.NATURAL)
    assert natural.rows == 16
    parts = [record.part for record in seen.records if isinstance(record, StartupRecord)]
    assert parts[0] is StartupPart.SERVER
    for cycle in seen.cycles():
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=0.01)
        assert cycle.completion_tokens == sum(cycle.lengths)
        assert cycle.prompt_tokens > 0
    assert tagged(HOME) == []


def check_weights(seen: Seen) -> None:
    """Each update's weights are the server's: its log-probs are the trainer's."""
    mismatches = [cycle.logp_mismatch for cycle in seen.cycles()]
    assert all(mismatch is not None and mismatch < 1.01 for mismatch in mismatches), mismatches


def test_ms_swift_beside_swift_rollout(tmp_path: Path) -> None:
    """At the lengths asked for, by phases, with each update's weights."""
    own = swift_trials.swift_python()
    tiny = swift_trials.build_tiny(tmp_path / "tiny")
    python = overlay(tmp_path / "env", own, training_python(), tiny / "model")
    report, seen = run("ms_swift", python, tiny, tmp_path)
    check(report, seen)
    check_weights(seen)
    assert any(isinstance(record, NoteRecord) and record.name == "arguments" for record in seen.records)


def test_open_r1_beside_vllm_serve(tmp_path: Path) -> None:
    """The server is TRL 0.18's, with a newer vLLM."""
    own, checkout = openr1_trials.environment()
    tiny = openr1_trials.build_tiny(tmp_path / "tiny", own)
    python = overlay(tmp_path / "env", own, training_python(), tiny / "model")
    report, seen = run("open_r1", python, tiny, tmp_path, checkout, VARIED, chat_template=openr1_trials.TEMPLATE)
    check(report, seen)
    synced = (tmp_path / "attempt" / "scratch" / SYNCED).read_text().splitlines()
    assert len(synced) >= len(seen.cycles())
    assert len(set(synced)) == len(synced), "each update's weights are others"
