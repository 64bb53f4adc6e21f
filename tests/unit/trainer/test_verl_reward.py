"""The exported reward as verl calls it: one completion at a time, with the columns of its prompt."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.trainer.test_verl_roundtrip import PLAIN
from trainer.child.contract import RewardSpec
from trainer.frameworks.verl import export

OWN = """\
def length(prompts, completions, answer, **more):
    text = completions[0] if isinstance(completions[0], str) else completions[0][0]["content"]
    assert len(completions) == len(answer) == 1
    return [len(text) + answer[0]]


async def late(completions, **more):
    return [0.5]


def nothing(completions, **more):
    return [None]
"""


@pytest.fixture
def score(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """``compute_score`` of an export with three rewards, loaded from its file as verl does."""
    (tmp_path / "own.py").write_text(OWN)
    rewards = tuple(RewardSpec("file", name, path=str(tmp_path / "own.py")) for name in ("length", "late", "nothing"))
    for name, text in export(PLAIN.wanted(rewards=rewards)).files.items():
        (tmp_path / name).write_text(text)
    before, path = set(sys.modules), list(sys.path)
    spec = importlib.util.spec_from_file_location("loaded_by_verl", tmp_path / "autotune_verl_reward.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.compute_score
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("prompt", ["1+1", [{"role": "user", "content": "1+1"}]])
def test_rewards_are_added_up_whether_they_wait_or_not(score: Callable[..., Any], prompt: Any) -> None:
    truth = json.dumps({"prompt": prompt, "answer": 10})
    assert score(data_source="autotune", solution_str="four", ground_truth=truth, extra_info={}) == 14.5


def test_a_failing_reward_is_not_hidden(score: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        score(data_source="autotune", solution_str="x", ground_truth=json.dumps({"prompt": "p"}))
