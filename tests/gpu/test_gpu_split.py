"""A trial on two GPUs, split between the trainer and vLLM's own server: skipped where there are fewer.

What no CPU can show: weights that arrive over NCCL, and figures. Not yet measured on a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration, FailureReason, Pool
from autotune.frameworks import TrlFramework
from autotune.machine import gpu_choice
from autotune.ports import Assignment, RunReport
from autotune.running.local import LocalRunner
from search_spaces.batch import served_by
from tests.contracts.runner_suite import RealClock, Seen, tagged
from tests.gpu.device import GPUS, require
from tests.support import factories
from tests.support.fakes import FakeStop
from tests.support.trl_trials import LENGTHS, PLAIN, reward_file, tiny_workload, training_python
from trainer.child.contract import CycleKind, NoteRecord, Protocol

pytestmark = [pytest.mark.trl, pytest.mark.gpu, pytest.mark.timeout(1200)]
HOME = "gpu-split"
NATURAL = Protocol(warmup=1, natural=1, recorded=2, lengths=LENGTHS, outside_cpu_limit=9.0)


def trial(tiny: Path, folder: Path, held: int, **knobs: Any) -> tuple[RunReport, Seen]:
    """Of the tiny model on the first ``held`` GPUs, through the runner of a study."""
    workload = tiny_workload(tiny, reward_file(folder, PLAIN), learning_rate=1e-4)
    resources = factories.resources(gpus=held, device="cuda", rows_per_update=16)
    spec = factories.study_spec(workload=workload, resources=resources, memory_limit=None)
    own = {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "num_generations": 4, "precision": "bf16"}
    given = factories.trial(
        configuration=Configuration({**own, **knobs}), protocol=NATURAL, rows_per_update=16, attempt=1
    )
    runner, seen = LocalRunner(training_python(), TrlFramework(), HOME, RealClock()), Seen()
    assignment = Assignment(factories.study(spec=spec), given, folder / "attempt", 900.0)
    return runner.run(assignment, seen, FakeStop()), seen


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    require("vllm", gpus=2)
    for name, value in gpu_choice.environment(GPUS[:2]).items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("two")
def test_one_trains_and_one_generates(tiny: Path, tmp_path: Path) -> None:
    """The learning rate moves the weights in every update, so stale ones would be seen in the log-probs."""
    report, seen = trial(tiny, tmp_path, 2, **served_by(1), gpu_memory_utilization=0.2)
    assert report.outcome.ok, report.outcome.sentence()
    assert [c.cycle_kind for c in seen.cycles()].count(CycleKind.RECORDED) == 2
    for cycle in seen.cycles():
        assert cycle.phases["sync"] > 0
        if cycle.cycle_kind is CycleKind.RECORDED:
            assert sorted(cycle.lengths) == sorted(LENGTHS)
        if cycle.cycle_kind is CycleKind.NATURAL:
            assert cycle.logp_mismatch < 1.1
    (note,) = (r for r in seen.records if isinstance(r, NoteRecord) and r.name == "gpu_peaks")
    assert min(note.data["bytes"].values()) > 1 << 28, "both GPUs were used"
    assert tagged(HOME) == []


@pytest.mark.usefixtures("two")
def test_a_server_that_does_not_fit_is_out_of_memory(tiny: Path, tmp_path: Path) -> None:
    """A share of 0.01 leaves no room for the cache, on the server's own GPU."""
    report, _ = trial(tiny, tmp_path, 2, **served_by(1), gpu_memory_utilization=0.01)
    assert report.outcome.reason is FailureReason.OOM, report.outcome.sentence()
    assert report.outcome.pool in (Pool.ROLLOUT_CACHE, Pool.DEVICE)
    assert Path(report.outcome.log_path).name == "server.txt"
    assert tagged(HOME) == []
