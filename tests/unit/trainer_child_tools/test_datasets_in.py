"""Datasets a TRL config names, loaded by datasets and TRL in the training environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.imports import of
from trainer.child.prompt_rows import UnusablePromptsError, sample
from trainer.child.prompt_rows import measure as measured

ROOT = Path(__file__).resolve().parents[3]
PYTHON = os.environ.get("AUTOTUNE_TEST_PYTHON", "")

PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
import start
sys.path.pop(0)
start.load_package()
module = importlib.import_module("_autotune_trainer.prompt_rows")
module.MOST_MEASURED = 20
for line in sys.stdin:
    keys = json.loads(line)
    try:
        rows, count = module.dataset_rows(keys, sys.argv[2], 0)
        print(json.dumps({"rows": rows, "count": count}))
    except Exception as error:
        print(json.dumps({"error": type(error).__name__ + ": " + str(error)}))
"""

pytestmark = [pytest.mark.trl]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not PYTHON:
        pytest.skip("AUTOTUNE_TEST_PYTHON names no interpreter")
    folder = tmp_path_factory.mktemp("work")
    write(folder / "data" / "train.jsonl", [{"prompt": f"p{i}", "answer": i, "tags": ["a"]} for i in range(50)])
    write(folder / "data" / "test.jsonl", [{"prompt": "t", "answer": 0, "tags": []}])
    write(folder / "chat" / "train.jsonl", [{"prompt": [{"role": "user", "content": "hi"}]}])
    write(folder / "questions" / "train.jsonl", [{"question": "q", "answer": 1}])
    write(folder / "empty_prompt" / "train.jsonl", [{"prompt": "a"}, {"prompt": ""}])
    wanted: dict[str, dict[str, Any]] = {
        "folder": {"dataset_name": "data"},
        "test": {"dataset_name": "./data", "dataset_train_split": "test"},
        "chat": {"dataset_name": "chat"},
        "file": {"dataset_name": "chat/train.jsonl"},
        "stream": {"dataset_name": "data", "dataset_streaming": True},
        "mixture": {
            "datasets": [
                {"path": "data", "split": "train", "columns": ["prompt"], "fraction": 0.5},
                {"path": "json", "data_files": "empty_prompt/train.jsonl", "split": "train[:1]", "fraction": 0.5},
            ],
            "dataset_name": "ignored",
        },
        "split": {"dataset_name": "data", "dataset_train_split": "trian"},
        "column": {"dataset_name": "questions"},
        "empty": {"dataset_name": "empty_prompt"},
        "gone": {"dataset_name": "someone/not-cached"},
        "nothing": {"dataset_config": "main"},
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM, str(ROOT / "trainer" / "child"), str(folder)],
        input="".join(json.dumps(keys) + "\n" for keys in wanted.values()),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(zip(wanted, lines, strict=True))


def test_a_folder_keeps_all_columns_and_a_bounded_sample_in_order(answers: dict[str, Any]) -> None:
    rows = answers["folder"]["rows"]
    assert answers["folder"]["count"] == 50
    assert len(rows) == 20
    assert rows[0].keys() == {"prompt", "answer", "tags"}
    numbers = [row["answer"] for row in rows]
    assert numbers == sorted(numbers)
    assert numbers != list(range(20))  # drawn from the whole, not its beginning: it may be sorted by length


def test_other_splits_files_streams_and_messages(answers: dict[str, Any]) -> None:
    assert answers["test"] == {"rows": [{"prompt": "t", "answer": 0, "tags": []}], "count": 1}
    assert answers["chat"]["rows"] == [{"prompt": [{"role": "user", "content": "hi"}]}]
    assert (len(answers["stream"]["rows"]), answers["stream"]["count"]) == (20, 0)


def test_a_mixture_is_made_by_trl(answers: dict[str, Any]) -> None:
    assert answers["mixture"] == {"rows": [{"prompt": "p0"}, {"prompt": "a"}], "count": 2}


@pytest.mark.parametrize(("name", "said"), of("what_cannot_be_used_is_one_sentence"))
def test_what_cannot_be_used_is_one_sentence(answers: dict[str, Any], name: str, said: str) -> None:
    assert answers[name]["error"].startswith("UnusablePromptsError: ")
    assert said in answers[name]["error"]
    assert "\n" not in answers[name]["error"]


def test_a_sample_is_repeatable_and_keeps_what_it_must() -> None:
    assert sample(5, 10, 0) == [0, 1, 2, 3, 4]
    assert sample(1000, 10, 3) == sample(1000, 10, 3) != sample(1000, 10, 4)
    for keep in range(0, 1000, 37):
        found = sample(1000, 10, 3, keep=keep)
        assert keep in found
        assert len(set(found)) == 10
        assert found == sorted(found)


def test_a_template_that_refuses_a_prompt_is_named() -> None:
    class Refusing:
        chat_template = "x"

        def apply_chat_template(self, prompt: Any, **_: Any) -> str:
            raise ValueError("roles must alternate")

    with pytest.raises(UnusablePromptsError, match=r"template of m refuses prompt 1: ValueError: roles must alternate"):
        measured([[{"role": "user", "content": "a"}]], Refusing(), "m")
