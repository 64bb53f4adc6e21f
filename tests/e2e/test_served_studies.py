"""Whole studies beside real rollout servers: measured, exported, and the export verified with a server of its own.

The GPUs are made up, and a CPU computes for them (``tests/support/without_gpu.py``): on a GPU nothing of this has run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.commands import tagged
from tests.support import trl_trials
from tests.support.node import Node
from tests.support.trl_trials import one_thread, training_python
from tests.support.without_gpu import overlay

pytestmark = [pytest.mark.full, pytest.mark.frameworks, pytest.mark.alone, pytest.mark.timeout(2400)]

PATIENCE_S = 1100.0
SPACE = """\
require: {device: cuda, gpus: 2}
knobs:
  rollout_engine: vllm
  rollout_mode: server
  rollout_gpus: 1
  enforce_eager: true
  rollout_dtype: fp32
  precision: fp32
  master_weights: fp32
  attn_implementation: sdpa
  optimizer: adamw_torch
  gradient_checkpointing: false
  micro_batch_size: [4, 2]
"""


@dataclass(frozen=True)
class Case:
    """A framework, and what its studies are told besides."""

    name: str
    python: Callable[[], str]
    words: tuple[str, ...] = ()

    def tiny(self, folder: Path) -> Path:
        """A model that its own interpreter has made, with prompts."""
        return trl_trials.build_tiny(folder, python=self.python())


CASES = (Case("trl", training_python),)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module", params=CASES, ids=[case.name for case in CASES])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A study of its baseline, run once."""
    case: Case = request.param
    folder = tmp_path_factory.mktemp(case.name)
    tiny = case.tiny(folder / "tiny")
    node = Node(folder, [{}] * 2, case.name)
    node.model = tiny / "model"
    node.python = Path(overlay(folder / "without-gpu", case.python(), training_python(), node.model))
    shutil.copy(tiny / "prompts.jsonl", folder / "prompts.jsonl")
    (folder / "my_reward.py").write_text("def score(completions, **_):\n    return [len(c) % 3 for c in completions]\n")
    (folder / "space.yaml").write_text(SPACE)
    words = [*case.words]
    words += ["--space", "space.yaml", "--max-trials", "1", "--sampler", "grid", "--cold"]
    batch = ("--effective-batch", "16", "--set", "num_generations=4", "--max-completion-length", "16")
    done = node.start(*words, *batch, "--max-prompt-length", "48", timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return node


def test_trials_beside_real_servers_are_measured_and_one_is_recommended(node: Node) -> None:
    trials = node.document("trials")["trials"]
    whole = [trial for trial in trials if trial["state"] == "COMPLETE"]
    assert trials[0]["state"] == "COMPLETE", trials[0]["outcome"]
    assert {trial["configuration"]["rollout_gpus"] for trial in whole} == {1}
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["tokens_per_hour_low"] <= best["tokens_per_hour"] <= best["tokens_per_hour_high"]
    assert tagged(node.home) == []


def test_verify_starts_the_exported_server_itself(node: Node) -> None:
    """How close the figure is, is a matter of the machine; that both are of the same run, is not."""
    done = node.run("verify", "--trial", "0", "--updates", "4", "--json", timeout=PATIENCE_S)
    assert done.returncode in (0, 3), done.stderr[-4000:]
    verdict = json.loads(done.stdout)
    assert verdict["updates"] == 4
    assert 0 < verdict["observed_mean_completion_tokens"] <= verdict["observed_longest_completion_tokens"] <= 16
    assert verdict["ratio"] == pytest.approx(verdict["observed_tokens_per_hour"] / verdict["expected_tokens_per_hour"])
    assert tagged(node.home) == []
