"""``prepare`` and ``probe`` in a real training environment.

Two are started as the tuner starts them; the others are forked from a process that has imported what they import.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forking_interpreter import Interpreter
from trainer.child.contract import Result, RunPaths, read_result

ROOT = Path(__file__).resolve().parents[3]
PYTHON = os.environ.get("AUTOTUNE_TEST_PYTHON", "")
GYM = {"kind": "reasoning_gym", "name": "chain_sum"}

pytestmark = [pytest.mark.trl, pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_TEST_PYTHON names no interpreter")]


START = ROOT / "trainer" / "child" / "start.py"
IMPORTS = "import reasoning_gym, torch, transformers; from transformers import AutoConfig, AutoModel, AutoTokenizer"
STARTED = "import runpy, sys; runpy.run_path(sys.argv[0], run_name='__main__')"


def command(name: str, folder: Path, config: dict[str, Any], forking: Interpreter | None = None) -> Result:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    words = [str(START), name, "--directory", str(folder)]
    if forking is None:
        done = subprocess.run([PYTHON, *words], check=False, cwd=folder, capture_output=True, text=True)
        status, said = done.returncode, done.stderr
    else:
        status, said = forking.run(STARTED, folder, *words), forking.said()
    result = read_result(RunPaths(folder).result)
    assert status == (0 if result.ok else 1), said
    return result


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    made = Interpreter(PYTHON, IMPORTS, tmp_path_factory.mktemp("interpreter") / "log.txt")
    yield made
    made.close()


def test_probe_finds_the_stack_and_the_reward_package(tmp_path: Path) -> None:
    result = command("probe", tmp_path / "run", {"devices": True, "rewards": [GYM]})
    assert result.ok, result.message
    assert {"torch", "trl", "transformers", "reasoning_gym"} <= set(result.data["packages"])
    assert result.data["devices"]["cuda"] in (True, False)


def test_real_tokenizer_and_real_task(tmp_path: Path, tiny: Path, forking: Interpreter) -> None:
    """The tiny tokenizer has one token a byte, so every length can be counted by hand."""
    config = {
        "model": str(tiny / "model"),
        "max_prompt_length": 200,
        "rewards": [GYM],
        "task": {"name": "chain_sum", "size": 12},
    }
    result = command("prepare", tmp_path / "run", config, forking)
    assert result.ok, result.message
    rows = [json.loads(line) for line in Path(result.data["prompts"]).read_text().splitlines()]
    assert len(rows) == result.data["count"] == 12
    assert result.data["longest_prompt"] == max(len(row["prompt"].encode()) for row in rows)
    assert result.data["model"]["layers"] == 2
    assert result.data["model"]["parameters"] > 0


def test_user_data_and_reward_file_with_hostile_neighbours(tmp_path: Path, tiny: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("trainer.py", "rewards.py", "transformers.py", "contract.py"):
        (own / name).write_text("raise SystemExit('a file beside the reward was imported')\n")
    (own / "my_reward.py").write_text("def score(completions, answer, **_):\n    return [float(a) for a in answer]\n")
    reward = {"kind": "file", "name": "score", "path": str(own / "my_reward.py")}
    config = {
        "model": str(tiny / "model"),
        "max_prompt_length": 200,
        "rewards": [reward],
        "data": str(tiny / "prompts.jsonl"),
    }
    result = command("prepare", tmp_path / "run", config)
    assert result.ok, result.message
    assert result.data["columns"] == ["answer", "prompt"]
