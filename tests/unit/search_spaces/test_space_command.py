"""``autotune space``: what people and programs read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from autotune.cli.commands.space import app
from autotune.errors import UsageError

L20 = ["check", "--framework", "open_r1", "--gpus", "4", "--rollout-gpus", "1"]
SENTENCE = (
    "3 training GPUs × micro-batch 1 = 3 is not divisible by num_generations 8; "
    "nearest legal: micro_batch_size 8, or num_generations 3."
)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, UsageError):
        return result.exception.exit_code, str(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


@pytest.mark.parametrize(
    "settings",
    [
        ["--set", "micro_batch_size=1", "--set", "num_generations=8"],
        ["--micro-batch", "1", "--num-generations", "8"],
        ["node-8gpu", "--micro-batch", "1", "--num-generations", "8"],
    ],
)
def test_four_l20_with_one_given_to_vllm(settings: list[str]) -> None:
    code, text = run(*L20, *settings)
    assert code == 2
    assert SENTENCE in text


def test_one_configuration_that_is_legal() -> None:
    assert run(*L20, "--set", "micro_batch_size=8") == (0, "legal\n")


def test_rows_that_deviate_are_printed() -> None:
    code, text = run("check", "--gpus", "8", "--rollout-gpus", "1", "--rows-per-update", "512", "--micro-batch", "8")
    assert code == 0
    assert "504 rows per update instead of 512 (-1.6 %)" in text


def test_one_configuration_as_json() -> None:
    code, text = run(*L20, "--set", "micro_batch_size=1", "--json")
    document = json.loads(text)
    assert code == 2
    assert document["legal"] is False
    assert document["violations"][0]["sentence"] == SENTENCE
    assert document["violations"][0]["nearest"][0] == {"knob": "micro_batch_size", "value": 8}


@pytest.mark.parametrize("machine", [[], ["--gpus", "1"], ["--gpus", "8"], ["--gpus", "8", "--nodes", "2"]])
def test_the_preset_for_the_machine_is_checked(machine: list[str]) -> None:
    code, text = run("check", *machine, "--rows-per-update", "256")
    assert code == 0
    assert "whole_groups removes" in text
    assert "nearest legal: " in text
    _, document = run("check", *machine, "--rows-per-update", "256", "--json")
    answer = json.loads(document)
    assert 0 < answer["legal"] < answer["combinations"]
    assert {"rule", "sentence", "nearest", "combinations"} <= set(answer["removed"][0])


def test_ranks_and_rows_are_called_as_start_calls_them() -> None:
    code, text = run("check", "--ranks", "2", "--effective-batch", "16", "--set", "micro_batch_size=4")
    assert (code, text) == (0, "legal\n")
    code, text = run("check", "--ranks", "3", "--effective-batch", "16", "--set", "micro_batch_size=4")
    assert code == 2
    assert "3 training processes × micro-batch 4 × accumulation 1 = 12 rows per update is 25.0 % off 16" in text
    code, text = run("show", "--ranks", "2")
    assert code == 0
    assert "trl, CPU, 2 training processes" in text
    code, text = run("check", "--ranks", "2", "--gpus", "4")
    assert code == 2
    assert "--ranks is for runs on a CPU" in text


@pytest.mark.parametrize("split", [("4", "1"), ("8", "1"), ("8", "4"), ("4", "2")])
def test_a_split_of_the_node_is_legal_with_replicas_nobody_named(split: tuple[str, str]) -> None:
    """3 + 1 and 7 + 1 among them; the preset searches replicas, and the split given says how many there are."""
    gpus, given = split
    arguments = ("check", "node-8gpu", "--gpus", gpus, "--rollout-gpus", given, "--effective-batch", "672", "--json")
    code, text = run(*arguments)
    assert code == 0
    assert json.loads(text)["as_given"] == []
    assert json.loads(text)["legal"] > 1000


def test_nothing_legal_says_why_and_fails() -> None:
    code, text = run("check", "cpu", "--gpus", "2")
    assert code == 2
    assert "the space is for CPU runs, and 2 GPUs are given." in text
    assert "nothing is legal; space_requires removes most" in text


def test_a_space_is_shown_within_eighty_columns() -> None:
    for preset in ("cpu", "single-gpu", "node-8gpu", "multi-node"):
        code, text = run("show", preset)
        assert code == 0
        assert max(len(line) for line in text.splitlines()) <= 80
        for word in ("micro_batch_size", "numerics", "learning", "native", "legal"):
            assert word in text


def test_seams_and_classes_are_shown() -> None:
    _, text = run("show", "single-gpu")
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert lines["logprob_token_chunk"][-2:] == ["a", "launcher"]
    assert lines["micro_batch_size"][-2:] == ["speed", "native"]
    assert lines["optimizer"][-2] == "speed"
    assert lines["rollout_engine"][-2:] == ["speed", "native"]


def test_a_space_as_json() -> None:
    document = json.loads(run("show", "cpu", "--json")[1])
    assert document["space"] == "cpu"
    assert {"knob", "values", "unit", "effect", "reach", "key", "summary"} == set(document["knobs"][0])
    assert document["legal"] > 0


def test_older_hardware_is_believed() -> None:
    code, text = run("check", "--gpus", "1", "--compute-capability", "7.5", "--set", "precision=bf16")
    assert code == 2
    assert "precision bf16 needs compute capability 8.0 or later, and this GPU has 7.5" in text


def test_heads_and_lengths_are_believed() -> None:
    vllm = ["check", "--gpus", "4", "--set", "rollout_engine=vllm"]
    code, text = run(*vllm, "--attention-heads", "14", "--set", "tensor_parallel_size=4")
    assert code == 2
    assert "14 attention heads are not divisible by tensor_parallel_size 4" in text
    code, text = run(*vllm, "--max-length", "4096", "--set", "max_model_len=2048")
    assert code == 2
    assert "shorter than the 4096 tokens" in text
