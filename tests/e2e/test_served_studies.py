"""Whole studies beside real rollout servers: measured, exported, and the export verified with a server of its own.

The GPUs are made up, and a CPU computes for them (``tests/support/without_gpu.py``): on a GPU nothing of this has run.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.commands import tagged
from tests.support import openr1_trials, swift_trials, trl_trials
from tests.support.imports import text_of
from tests.support.node import Node
from tests.support.trl_trials import training_python
from tests.support.without_gpu import overlay

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.frameworks, pytest.mark.timeout(5400)]

PATIENCE_S = 1100.0
SPACE = text_of("served_space.yaml")
"""Completions by the training processes on both GPUs, or by a server on one; vLLM beside the training needs a GPU."""
FP32 = "  rollout_dtype: fp32\n"


@dataclass(frozen=True)
class Case:
    """A framework, and what its studies are told besides."""

    name: str
    python: Callable[[], str]
    words: Callable[[], tuple[str, ...]] = tuple
    space: str = SPACE

    def tiny(self, folder: Path) -> Path:
        """A model that its own interpreter has made, with prompts."""
        tiny = trl_trials.build_tiny(folder, python=self.python())
        if self.name == "open_r1":  # which asks in conversations
            (tiny / "model" / "chat_template.jinja").write_text(openr1_trials.TEMPLATE)
        return tiny


CASES = (
    Case("trl", training_python, space=SPACE + FP32),
    Case("ms_swift", swift_trials.swift_python, lambda: ("--framework", "swift")),
    Case(
        "open_r1",
        lambda: openr1_trials.environment()[0],
        lambda: ("--framework", "openr1", "--openr1", openr1_trials.environment()[1]),
        SPACE + FP32,
    ),
)


@pytest.fixture(scope="module", params=CASES, ids=[case.name for case in CASES])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A study of both, run once."""
    case: Case = request.param
    folder = tmp_path_factory.mktemp(case.name)
    tiny = case.tiny(folder / "tiny")
    node = Node(folder, [{}] * 2, case.name)
    node.model = tiny / "model"
    node.python = Path(overlay(folder / "without-gpu", case.python(), training_python(), node.model))
    shutil.copy(tiny / "prompts.jsonl", folder / "prompts.jsonl")
    (folder / "my_reward.py").write_text("def score(completions, **_):\n    return [len(c) % 3 for c in completions]\n")
    (folder / "space.yaml").write_text(case.space)
    words = [*case.words(), "--space", "space.yaml", "--max-trials", "2", "--sampler", "grid", "--cold"]
    words += ["--budget", "15m", "--set", "micro_batch_size=4", "--set", "num_generations=4", "--effective-batch", "16"]
    done = node.start(*words, "--max-completion-length", "16", "--max-prompt-length", "48", timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr[-4000:]
    return node


def test_colocated_and_served_are_measured_and_one_is_recommended(node: Node) -> None:
    trials = node.document("trials")["trials"]
    assert [trial["outcome"]["ok"] for trial in trials[:2]] == [True, True], [trial["outcome"] for trial in trials]
    assert [trial["configuration"]["rollout_engine"] for trial in trials[:2]] == ["transformers", "vllm"]
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["configuration"] in [trial["configuration"] for trial in trials[:2]]
    assert best["tokens_per_hour_low"] <= best["tokens_per_hour"] <= best["tokens_per_hour_high"]
    assert tagged(node.home) == []


def test_verify_starts_the_exported_server_itself(node: Node) -> None:
    """It holds, or the machine has changed; that it does not at all is told apart from both."""
    done = node.run("verify", "--trial", "1", "--updates", "4", "--json", timeout=PATIENCE_S)
    assert done.returncode in (0, 3, 5), done.stderr[-4000:]
    verdict = json.loads(done.stdout)
    assert verdict["updates"] == 4
    assert 0 < verdict["observed_mean_completion_tokens"] <= verdict["observed_longest_completion_tokens"] <= 16
    assert verdict["ratio"] == pytest.approx(verdict["observed_tokens_per_hour"] / verdict["expected_tokens_per_hour"])
    assert verdict["reference_kernel_ratio"] > 0, "the kernel is timed around the trial's cycles and around the run"
    found = (verdict["within_5_percent"], verdict["undecided"])
    assert found == {0: (True, False), 3: (False, False), 5: (False, True)}[done.returncode]
    assert tagged(node.home) == []
