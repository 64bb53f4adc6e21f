"""``autotune plan``: what people and programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli.commands.plan import plan
from tests.support.published_models import PUBLISHED

SPACE = """
knobs:
  rollout_engine: [vllm, transformers]
  micro_batch_size: [1, 2, 4]
  gradient_checkpointing: [true, false]
  zero_stage: 0
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    for name in ("AUTOTUNE_DATABASE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["Qwen2.5-1.5B"][0]))
    (tmp_path / "space.yaml").write_text(SPACE)
    return tmp_path


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(plan)
    return CliRunner().invoke(app, list(arguments))


def asked(*more: str) -> Any:
    return run("--model", "config.json", "--gpu", "h100", "--space", "space.yaml", *more)


def test_a_plan_says_that_it_is_predicted_and_what_it_rests_on(model: Path) -> None:
    found = asked()
    flat = " ".join(found.stdout.split())
    assert found.exit_code == 0
    assert "PREDICTED from the model's configuration alone; nothing was run." in flat
    assert "1.54B parameters" in flat
    assert "not yet compared with a recorded table on this GPU" in flat
    assert "bound by" in flat
    assert all(len(line) <= 80 for line in found.stdout.splitlines())
    assert not (model / "home").exists(), "a plan creates nothing"


def test_programs_get_one_document(model: Path) -> None:
    first = asked("--json")
    run = json.loads(asked("--json", "--updates", "10", "--price", "2").stdout)["whole_run"]
    assert run["cost"]["after"]["value"] == pytest.approx(2 * run["hours"]["after"]["value"])
    assert "your run    10 updates of " in asked("--updates", "10").stdout
    assert first.exit_code == 0
    document = json.loads(first.stdout)
    assert document["load"]["parameters"] == PUBLISHED["Qwen2.5-1.5B"][1]
    assert document["machine"] == {"gpu": "h100", "gpu_memory_bytes": 81_559 << 20, "gpus": 1, "nodes": 1}


def test_where_nothing_fits_the_exit_code_says_so(model: Path) -> None:
    found = run("--model", "config.json", "--gpu", "l4", "--space", "space.yaml")
    assert found.exit_code == 3, "16 bytes for each of 1.5B parameters are more than 24 GB"
    assert "Nothing is likely to fit" in " ".join(found.stdout.split())
    with_fewer_bits = run("--model", "config.json", "--gpu", "l4")
    assert with_fewer_bits.exit_code == 3
    assert "Nothing with the same numerics is likely to fit" in " ".join(with_fewer_bits.stdout.split())


def test_what_a_model_needs_is_a_table_of_gpus(model: Path) -> None:
    found = run("--model", "config.json", "--need", "--lora-rank", "8")
    flat = " ".join(found.stdout.split())
    assert found.exit_code == 0
    assert "PREDICTED" in flat
    assert "LoRA, rank 8" in flat
    assert "host memory of a node" in flat
    document = json.loads(run("--model", "config.json", "--need", "--lora-rank", "8", "--json").stdout)
    assert {need["how"] for need in document["needs"]} == {"LoRA"}
    assert all(need["machine"]["gpus"] == 1 for need in document["needs"]), "adapters of 1.5B fit one GPU of 24 GB"
