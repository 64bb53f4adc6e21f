"""Real trials of a tiny model, three in one worker against three in processes of their own."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.trl_trials import PLAIN, START, Ran, end, environment, reward_file, run_trial, tiny_spec, write_spec
from tests.support.trl_trials import training_python as python
from trainer.child.contract import Letter, Mailbox, StartupRecord, TrialSpec, WorkerReply

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(1500)]

LEARNING = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}
"""Steps large enough that weights, moments or random states of the trial before would be seen at once."""
VLLM = {
    "rollout_engine": "vllm",
    "max_model_len": 256,
    "kv_cache_memory_bytes": 64 << 20,
    "rollout_dtype": "fp32",
    "max_num_seqs": 16,
}
ORDERS: list[dict[str, Any]] = [
    {},
    {"micro_batch_size": 8, "logprob_token_chunk": 64, "gradient_checkpointing": True},
    {},
]
"""Third as first: what the second set must be gone again."""
NOISE, BYTES = 0.05, 96 << 20
"""Of a peak: what two processes that do the same may differ by, and what one with an engine keeps (decision 23)."""


def specs(tiny: Path, engine: dict[str, Any]) -> list[TrialSpec]:
    reward = reward_file(tiny / "reward", PLAIN)
    return [tiny_spec(tiny, reward, knobs={**engine, **knobs}, passthrough=LEARNING) for knobs in ORDERS]


def run_warm(folder: Path, wanted: list[TrialSpec]) -> tuple[list[Ran], list[WorkerReply]]:
    """The trials in one worker, one after the other."""
    box = Mailbox(folder / "box")
    box.scratch.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        command = [python(), str(START), "worker", "--directory", str(box.root)]
        worker = subprocess.Popen(command, cwd=box.scratch, stdout=log, stderr=log, env=environment())
    ran, answers = [], []
    try:
        for number, spec in enumerate(wanted, 1):
            paths = write_spec(folder / str(number), spec)
            box.send(number, Letter(str(paths.root), "w"))
            while (answer := box.read_answer(number)) is None and worker.poll() is None:
                time.sleep(0.05)
            assert answer is not None, (folder / "log").read_text()[-3000:]
            ran.append(Ran(paths.root))
            answers.append(answer)
    finally:
        worker.terminate()
        end(worker)
    return ran, answers


@pytest.mark.parametrize("engine", [{}, VLLM], ids=["transformers", "vllm"])
def test_a_trial_in_a_used_process_is_the_trial_of_a_fresh_one(tiny: Path, tmp_path: Path, engine: Any) -> None:
    wanted = specs(tiny, engine)
    warm, answers = run_warm(tmp_path, wanted)
    cold = [run_trial(tmp_path / f"cold{number}", spec) for number, spec in enumerate(wanted[:2])]
    for used, fresh in zip(warm, [*cold, cold[0]], strict=True):
        assert used.result.ok, used.result.detail
        assert figures(used) == figures(fresh)  # to the last bit
        assert used.worst_case is not None
        peaks = [(peak(used, index), peak(fresh, index)) for index in range(len(fresh.cycles))]
        assert all(abs(a - b) <= max(NOISE * b, BYTES) for a, b in peaks), peaks
    assert [answer.left for answer in answers] == ["", "", ""]
    assert [ran.note("worker").data["restarted"] for ran in warm] == ["process", "none", "none"]
    assert [ran.note("worker").data["number"] for ran in warm] == [1, 2, 3]
    assert answers[2].floor <= answers[0].floor * 1.05
    first, *again = (part(ran, "import") for ran in warm)
    assert all(seconds < 0.2 * first for seconds in again)


def figures(ran: Ran) -> list[tuple[Any, ...]]:
    return [(c.cycle_kind, c.lengths, c.loss, c.grad_norm, c.reward_mean, c.computed_tokens) for c in ran.cycles]


def peak(ran: Ran, index: int) -> int:
    return ran.cycles[index].peaks["cycle"].host or 0


def part(ran: Ran, name: str) -> float:
    return next(r.seconds for r in ran.records if isinstance(r, StartupRecord) and r.part.value == name)
