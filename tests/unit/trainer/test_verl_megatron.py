"""verl's Megatron engine: its keys are read and given back."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from search_spaces.configuration import Configuration
from tests.support.exports import export_request
from tests.support.megatron_examples import EXAMPLES
from tests.support.verl_cases import legal
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.exported import RUN
from trainer.frameworks.verl import export
from trainer.frameworks.verl.hydra import override
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.keys import added
from trainer.frameworks.verl.reading import read_given

FIXTURES = Path(__file__).parents[2] / "fixtures"
THEIRS = frozenset(json.loads((FIXTURES / "verl_megatron_fields.json").read_text(encoding="utf-8"))["keys"])
A, M, R = "actor_rollout_ref.actor.", "actor_rollout_ref.actor.megatron.", "actor_rollout_ref.rollout."
OPT = f"{A}optim.override_optimizer_config."


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


def read(gpus: int, settings: dict[str, Any]) -> Imported:
    keys = {f"{R}name": "vllm", "trainer.n_gpus_per_node": gpus // int(settings.get("trainer.nnodes", 1)), **settings}
    return import_config("\n".join(override(k, v) for k, v in keys.items() if v is not None), "run.txt")


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.of == "verl"])
def test_an_example_is_given_back(name: str) -> None:
    found = import_config(EXAMPLES[name].text, "run.txt")
    again = import_config(given_back(found, EXAMPLES[name].gpus), RUN)
    assert Configuration({**again.knobs, **found.knobs}) == Configuration(again.knobs)
    assert {key: again.passthrough.get(key) for key in found.passthrough} == dict(found.passthrough)


def given_back(found: Imported, gpus: int) -> str:
    knobs = found.knobs
    ranks = gpus // int(knobs.get("training_tensor_parallel_size", 1)) // int(knobs.get("pipeline_parallel_size", 1))
    rows = ranks // int(knobs.get("sequence_parallel_size", 1)) * int(knobs["micro_batch_size"])
    rows *= int(knobs["gradient_accumulation_steps"])
    cluster = {"world_size": gpus, "nodes": max(1, gpus // 8)}
    asked = export_request(
        configuration=Configuration(knobs), rows_per_update=rows, passthrough=found.passthrough, **cluster
    )
    return export(asked).files[RUN]


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
    settings = {
        **batch(1024, 256, 5, 24576),
        f"{M}tensor_model_parallel_size": 2,
        f"{M}pipeline_model_parallel_size": 2,
    }
    with pytest.raises(ConfigError, match=words) as refused:
        read(8, {**settings, **more})
    assert str(refused.value).startswith("run.txt, line ")


def test_verls_older_files_for_megatron_are_the_same_choice() -> None:
    text = "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' \\\n "
    keys = {**batch(64, 64, 2, 4096), "model_engine": None, f"{M}tensor_model_parallel_size": 4}
    words = " ".join(override(key, value) for key, value in keys.items() if value is not None)
    found = import_config(text + words, "run.sh", processes=8)
    assert (found.knobs["training_engine"], found.knobs["training_tensor_parallel_size"]) == ("megatron", 4)
