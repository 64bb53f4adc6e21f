"""verl's Megatron engine: its own examples are read, judged and given back, and no trial runs with it.

The settings are those of verl at 1dda039, each under the name of the script that has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from search_spaces.configuration import Configuration, ModelFacts, Resources
from search_spaces.legality import check
from tests.support.verl_cases import legal
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import RUN, ExportRequest
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.verl import export, unsupported
from trainer.frameworks.verl.hydra import override
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.keys import added
from trainer.frameworks.verl.reading import read_given

FIXTURES = Path(__file__).parents[2] / "fixtures"
THEIRS = frozenset(json.loads((FIXTURES / "verl_megatron_fields.json").read_text(encoding="utf-8"))["keys"])
A, M, R = "actor_rollout_ref.actor.", "actor_rollout_ref.actor.megatron.", "actor_rollout_ref.rollout."
T, OPT = f"{M}override_transformer_config.", f"{A}optim.override_optimizer_config."
QWEN3_8B = ModelFacts(layers=36, attention_heads=32, key_value_heads=8, experts=0)
QWEN3_30B = ModelFacts(layers=48, attention_heads=32, key_value_heads=4, experts=128)
QWEN2_32B = ModelFacts(layers=64, attention_heads=40, key_value_heads=8, experts=0)
DEEPSEEK_V3 = ModelFacts(layers=61, attention_heads=128, key_value_heads=128, experts=256)


def batch(rollout: int, update: int, n: int, tokens: int) -> dict[str, Any]:
    return {
        "model_engine": "megatron",
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": rollout,
        f"{A}ppo_mini_batch_size": update,
        f"{R}n": n,
        f"{A}use_dynamic_bsz": True,
        f"{A}ppo_max_token_len_per_gpu": tokens,
        f"{R}log_prob_max_token_len_per_gpu": tokens,
    }


def full(layers: int = 1) -> dict[str, Any]:
    return {
        f"{T}recompute_{name}": v
        for name, v in (("granularity", "full"), ("method", "uniform"), ("num_layers", layers))
    }


EXAMPLES: dict[str, tuple[int, ModelFacts, dict[str, Any], dict[str, Any]]] = {
    "examples/grpo_trainer/run_qwen3_8b_megatron.sh": (
        8,
        QWEN3_8B,
        {**batch(1024, 256, 5, 24576), f"{M}tensor_model_parallel_size": 2, f"{M}pipeline_model_parallel_size": 2},
        {"training_tensor_parallel_size": 2, "pipeline_parallel_size": 2, "training_engine": "megatron"},
    ),
    "examples/grpo_trainer/run_qwen3_vl_30b_a3b_megatron.sh": (
        8,
        QWEN3_30B,
        {
            **batch(512, 128, 5, 4096),
            **full(),
            f"{A}ppo_micro_batch_size_per_gpu": 1,
            f"{M}tensor_model_parallel_size": 2,
            f"{M}pipeline_model_parallel_size": 1,
            f"{M}context_parallel_size": 2,
            f"{M}expert_model_parallel_size": 8,
            f"{M}expert_tensor_parallel_size": 1,
            **{f"{M}{part}_offload": True for part in ("param", "optimizer", "grad")},
            f"{OPT}optimizer_offload_fraction": 1,
            f"{OPT}overlap_cpu_optimizer_d2h_h2d": True,
            f"{OPT}optimizer_cpu_offload": True,
            f"{T}moe_permute_fusion": True,
            f"{R}tensor_model_parallel_size": 4,
            "actor_rollout_ref.ref.megatron.param_offload": True,
        },
        {
            "sequence_parallel_size": 2,
            "expert_parallel_size": 8,
            "expert_tensor_parallel_size": 1,
            "optimizer_offload_share": 1.0,
            "rollout_offload_model": True,
            "rollout_offload_optimizer": True,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_layers": 1,
            "gradient_accumulation_steps": 320,
        },
    ),
    "examples/tuning/scaling/run_qwen2_5_32b_megatron.sh": (
        8,
        QWEN2_32B,
        {
            **batch(512, 256, 5, 32768),
            "model_engine": None,
            f"{A}strategy": "megatron",
            f"{M}tensor_model_parallel_size": 8,
            f"{M}pipeline_model_parallel_size": 1,
        },
        {"training_tensor_parallel_size": 8, "training_engine": "megatron"},
    ),
    "examples/grpo_trainer/run_deepseek_v3_671b_megatron.sh": (
        96,
        DEEPSEEK_V3,
        {
            **batch(96, 32, 8, 10240),
            **full(),
            f"{M}tensor_model_parallel_size": 8,
            f"{M}pipeline_model_parallel_size": 12,
            f"{M}expert_model_parallel_size": 8,
            f"{M}expert_tensor_parallel_size": 1,
            f"{T}num_layers_in_last_pipeline_stage": 6,
            f"{R}tensor_model_parallel_size": 32,
            f"{A}optim.clip_grad": 1.0,
            "trainer.nnodes": 12,
        },
        {"last_stage_layers": 6, "pipeline_parallel_size": 12},
    ),
}


def read(gpus: int, settings: dict[str, Any]) -> Imported:
    keys = {f"{R}name": "vllm", "trainer.n_gpus_per_node": gpus // int(settings.get("trainer.nnodes", 1)), **settings}
    return import_config("\n".join(override(k, v) for k, v in keys.items() if v is not None), "run.txt")


def machine(gpus: int, model: ModelFacts) -> Resources:
    return Resources(gpus=min(8, gpus), nodes=max(1, gpus // 8), device="cuda", framework="verl", model=model)


def judged(name: str, **changes: Any) -> list[str]:
    gpus, model, settings, _ = EXAMPLES[name]
    knobs = {**read(gpus, settings).knobs, **changes}
    return [v.rule for v in check(knobs, machine(gpus, model), Configuration(knobs))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_verls_is_read_and_legal(name: str) -> None:
    gpus, _, settings, knobs = EXAMPLES[name]
    found = read(gpus, settings)
    assert {knob: found.knobs.get(knob) for knob in knobs} == knobs
    assert judged(name) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_trial_of_it_runs_and_one_sentence_says_so(name: str) -> None:
    gpus, _, settings, _ = EXAMPLES[name]
    assert unsupported(read(gpus, settings).knobs) == [
        "model_engine megatron: trials of the megatron engine are not run yet; set it to dp, with FSDP"
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_given_back(name: str) -> None:
    gpus, _, settings, _ = EXAMPLES[name]
    found = read(gpus, settings)
    again = import_config(given_back(found, gpus), RUN)
    assert Configuration({**again.knobs, **found.knobs}) == Configuration(again.knobs)
    assert {key: again.passthrough.get(key) for key in found.passthrough} == dict(found.passthrough)


def given_back(found: Imported, gpus: int) -> str:
    knobs = found.knobs
    ranks = gpus // int(knobs.get("training_tensor_parallel_size", 1)) // int(knobs.get("pipeline_parallel_size", 1))
    rows = ranks // int(knobs.get("sequence_parallel_size", 1)) * int(knobs["micro_batch_size"])
    wanted = ExportRequest(
        title="", configuration=Configuration(knobs), python="python", model="m", rewards=(), device="cuda",
        rows_per_update=rows * int(knobs["gradient_accumulation_steps"]), max_completion_length=64,
        max_prompt_length=64, world_size=gpus, nodes=max(1, gpus // 8), passthrough=found.passthrough,
    )  # fmt: skip
    return export(wanted).files[RUN]


def test_every_key_that_is_written_is_one_of_verls_files_for_megatron() -> None:
    seen, drawn = set(), (legal(Random(seed), modes=True) for seed in range(200))
    for each in drawn:
        if each.configuration.get("training_engine") != "megatron":
            continue
        keys = read_given(export(each.wanted()).files[RUN], RUN).values
        seen |= {key for key in keys if key.startswith(("actor_rollout_ref.", "trainer.", "data.", "algorithm."))}
    assert f"{M}context_parallel_size" in seen
    assert {key for key in seen - THEIRS if not added(key)} == set()
    assert not any(".fsdp_config." in key for key in seen)


@pytest.mark.parametrize(
    ("name", "changes", "rule"),
    [
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"training_tensor_parallel_size": 3}, "megatron_world"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"training_tensor_parallel_size": 3}, "megatron_heads"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"sequence_parallel_size": 4}, "megatron_world"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"pipeline_parallel_size": 8}, "megatron_layers"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"virtual_pipeline_size": 5}, "megatron_layers"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"expert_parallel_size": 2}, "megatron_experts"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"recompute_granularity": "full"}, "megatron_recompute"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"precision": "fp32"}, "megatron_precision"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"optimizer": "adamw_torch_8bit"}, "megatron_rests"),
        ("examples/grpo_trainer/run_qwen3_8b_megatron.sh", {"training_engine": "torch"}, "knob_acts"),
        ("examples/grpo_trainer/run_qwen3_vl_30b_a3b_megatron.sh", {"expert_parallel_size": 3}, "megatron_experts"),
        (
            "examples/grpo_trainer/run_qwen3_vl_30b_a3b_megatron.sh",
            {"expert_tensor_parallel_size": 2},
            "megatron_expert_world",
        ),
        (
            "examples/grpo_trainer/run_qwen3_vl_30b_a3b_megatron.sh",
            {"megatron_sequence_parallel": False},
            "megatron_expert_tokens",
        ),
        ("examples/grpo_trainer/run_deepseek_v3_671b_megatron.sh", {"last_stage_layers": 5}, "megatron_layers"),
        (
            "examples/grpo_trainer/run_qwen3_8b_megatron.sh",
            {"virtual_pipeline_size": 2, "dynamic_batching": False, "gradient_accumulation_steps": 5},
            "megatron_micro_batches",
        ),
    ],
)
def test_what_megatron_refuses_is_refused_by_a_rule(name: str, changes: dict[str, Any], rule: str) -> None:
    assert rule in judged(name, **changes)


def test_micro_batches_are_of_the_data_parallel_ranks() -> None:
    settings = {
        **batch(48, 12, 1, 4096),
        f"{R}n": 2,
        f"{A}use_dynamic_bsz": False,
        f"{A}ppo_micro_batch_size_per_gpu": 3,
    }
    fitting = read(8, {**settings, f"{M}tensor_model_parallel_size": 2})  # 24 rows, 4 ranks
    assert (fitting.knobs["micro_batch_size"], fitting.knobs["gradient_accumulation_steps"]) == (3, 2)
    with pytest.raises(ConfigError, match="24 rows are no whole micro-batches of 5 rows on 4 ranks"):
        read(8, {**settings, f"{A}ppo_micro_batch_size_per_gpu": 5, f"{M}tensor_model_parallel_size": 2})
    with pytest.raises(ConfigError, match="tensor_model_parallel_size: 3 GPUs cannot hold a model evenly on 8 GPUs"):
        read(8, {**settings, f"{M}tensor_model_parallel_size": 3})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({f"{A}fsdp_config.param_offload": True}, "it is FSDP's, and the run trains with Megatron"),
        ({f"{A}strategy": "fsdp2"}, "expected megatron beside model_engine megatron, got fsdp2"),
        ({f"{M}dtype": "float32"}, "expected one of"),
        ({f"{M}pipeline_model_parallel_size": 0}, "expected a whole number from 1"),
        ({f"{OPT}optimizer_cpu_offload": 3}, "expected true or false, got 3"),
    ],
)
def test_settings_of_both_engines_and_wrong_values_are_refused_by_their_line(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        read(8, {**EXAMPLES["examples/grpo_trainer/run_qwen3_8b_megatron.sh"][2], **more})
    assert str(refused.value).startswith("run.txt, line ")


def test_verls_older_files_for_megatron_are_the_same_choice() -> None:
    text = "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' \\\n "
    keys = {**batch(64, 64, 2, 4096), "model_engine": None, f"{M}tensor_model_parallel_size": 4}
    words = " ".join(override(key, value) for key, value in keys.items() if value is not None)
    found = import_config(text + words, "run.sh", processes=8)
    assert (found.knobs["training_engine"], found.knobs["training_tensor_parallel_size"]) == ("megatron", 4)
