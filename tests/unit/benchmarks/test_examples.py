"""The table of public examples says of each file what ``autotune start`` would say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.errors import UsageError
from benchmarks.examples import main

LEGAL = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \\
    data.max_prompt_length=512 data.max_response_length=512 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.n=4 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    trainer.n_gpus_per_node=4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a_legal.sh").write_text(LEGAL)
    (tmp_path / "b_not.sh").write_text(LEGAL.replace("tensor_model_parallel_size=1", "tensor_model_parallel_size=3"))
    (tmp_path / "inner" / "c_refused.sh").write_text(LEGAL.replace("estimator=grpo", "estimator=gae"))
    (tmp_path / "other.sh").write_text("pip install verl\n")
    return tmp_path


def test_a_row_for_each_file_that_starts_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verl", str(folder), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["file"], row["outcome"], row["gpus"]) for row in rows] == [
        ("a_legal.sh", "legal", 4),
        ("b_not.sh", "not legal", 4),
        ("inner/c_refused.sh", "refused", 0),
    ]
    assert [bool(row["sentence"]) for row in rows] == [False, True, True]
    assert "c_refused.sh, line 1" in rows[2]["sentence"]


def test_the_table_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verl", str(folder), "--holding", "main_ppo"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "2 of 3 files are read whole: 1 legal, 1 not legal, 1 refused."
    assert len([line for line in printed if line.startswith("| `")]) == 3


def test_one_file_and_a_knob_of_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verl", str(folder / "b_not.sh"), "--set", "tensor_parallel_size=2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "legal"


def test_no_folder() -> None:
    with pytest.raises(UsageError, match="there is no"):
        main(["verl", "/nowhere/at/all"])
