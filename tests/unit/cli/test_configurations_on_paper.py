"""A user's own configuration is planned, checked and exported where there is no study, no GPU and no framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of

MODEL = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
    "tie_word_embeddings": True, "max_position_embeddings": 131072,
}  # fmt: skip
TRL = "model_name_or_path: model\ndataset_name: a/set\nreward_funcs: [accuracy_reward]\nbf16: true\nnum_processes: 2\n"
OPENR1 = (
    "model_name_or_path: model\ndataset_name: a/set\nreward_funcs: [accuracy]\nbf16: true\nuse_vllm: false\n"
    "num_generations: 16\n"
)
SWIFT = (
    "NPROC_PER_NODE=2 swift rlhf --rlhf_type grpo --model model --tuner_type full --dataset d.jsonl --use_vllm true "
    "--vllm_mode colocate --reward_funcs accuracy --per_device_train_batch_size 4 --num_generations 8 "
    "--deepspeed zero2 --gradient_accumulation_steps 2 --vllm_gpu_memory_utilization 0.4"
)
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=t.parquet "
    "trainer.n_gpus_per_node=2 actor_rollout_ref.model.path=model data.train_batch_size=8 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=8 "
    "actor_rollout_ref.rollout.n=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 data.max_prompt_length=128 "
    "data.max_response_length=256"
)
OWN = {"trl": ("grpo.yaml", TRL), "openr1": ("r.yaml", OPENR1), "swift": ("run.sh", SWIFT), "verl": ("run.sh", VERL)}
EVERY = pytest.mark.parametrize("framework", OWN)
CARD = ("--gpu", "h100", "--gpus", "2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    for name, text in OWN.values():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "home"))
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(build_app(), list(words))


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """(Exit code, what was said of it) of a command that is refused."""
    code = exit_code_of(lambda: build_app()(list(words), prog_name="autotune"))
    return code, capsys.readouterr().err


def own(framework: str) -> Path:
    name, text = OWN[framework]
    Path(name).write_text(text)
    return Path(name)


@EVERY
def test_a_plan_says_whether_it_fits_when_it_is_fullest_and_what_is_faster(framework: str) -> None:
    asked = ("plan", "--config", str(own(framework)), "--framework", framework, *CARD)
    found = run(*asked, "--json")
    assert found.exit_code == 0, found.output
    document: dict[str, Any] = json.loads(found.stdout)
    yours = document["framework_defaults"]
    assert document["config"] == OWN[framework][0]
    assert yours["fits_probability"] > 0.9
    assert yours["peak_moment"] in ("generate", "sync", "logprob", "update", "step")
    assert yours["configuration"]["micro_batch_size"] == (4 if framework in ("swift", "verl") else 8)
    assert document["load"]["rows_per_update"] == {"trl": 16, "openr1": 16, "swift": 16, "verl": 64}[framework]
    screen = " ".join(run(*asked).stdout.split())
    assert f"{OWN[framework][0]} fits, with" in screen
    assert "tokens/hour" in screen
    assert "faster" in screen


@EVERY
def test_what_does_not_fit_ends_with_three_and_what_is_wrong_with_two(
    framework: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("plan", "--config", str(own(framework)), "--framework", framework, "--gpu", "a100", "--gpus", "2")
    small = ("--gpu-memory", "4", "--max-completion-length", "4096")
    assert run(*asked, *small).exit_code == 3
    code, said = told(capsys, *asked[:-1], "3", *small)
    assert code == 2
    assert said.startswith(f"autotune: {OWN[framework][0]}"), "by its file"


@EVERY
def test_doctor_judges_it_for_gpus_that_are_not_here(framework: str) -> None:
    path = own(framework)
    asked = ("doctor", "--config", str(path), "--framework", framework, "--reward", "math-verify", "--json")
    fine = run(*asked, *CARD)
    assert fine.exit_code == 0, fine.output
    assert {finding["name"] for finding in json.loads(fine.stdout)["findings"]} == {"config"}
    assert "only the configuration was checked" in run(*asked[:-1], *CARD).stdout, "and not this machine"
    bad = run(*asked, "--gpu", "h100", "--gpus", "5")
    assert bad.exit_code == 2, bad.output


@EVERY
def test_an_export_changes_the_knobs_that_were_named_and_nothing_else(framework: str, tmp_path: Path) -> None:
    path, out = own(framework), tmp_path / "out"
    words = ("--format", framework, "--gpus", "2", "--set", "gradient_checkpointing=true", "-o", str(out), "--json")
    found = run("export", "--config", str(path), *words)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document["measured"] is False
    assert "train" in " ".join((out / name).read_text() for name in document["files"])
    key = {"verl": "enable_gradient_checkpointing=true", "swift": "--gradient_checkpointing true"}
    text = (out / {"trl": "grpo.yaml", "openr1": "recipe.yaml"}.get(framework, "run.sh")).read_text()
    assert key.get(framework, "gradient_checkpointing: true") in text
    strange = ("max_model_len", "enforce_eager", "kv_cache", "attn_impl")
    assert framework == "verl" or not [word for word in strange if word in text], "knobs that nobody named"
    assert "prompts/train.jsonl" not in document["files"], "the prompts are the configuration's own"
    again = run("export", "--config", str(path), *words)
    assert again.exit_code != 0, "files that are there"
