"""Megatron-SWIFT: ms-swift's own scripts are read, judged and given back, and no trial runs with it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, ModelFacts
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.megatron import ENGINE as ENGINE_KNOB
from search_spaces.legality import check
from search_spaces.legality.passthrough import check_passthrough
from search_spaces.native import acting
from tests.support.imports import of
from tests.support.megatron_examples import EXAMPLES
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from tests.support.swift_megatron_cases import LONGEST, VALUES, Combination, legal, machine
from trainer.frameworks import ms_swift
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.exported import SERVER
from trainer.frameworks.ms_swift.import_config import import_config, read_keys
from trainer.frameworks.ms_swift.keys import OF_MEGATRON, SUPPORTED
from trainer.frameworks.ms_swift.megatron import ARGUMENTS, KEYS, TORCH, UNSET

ANY = st.integers(0, 1 << 30).map(lambda seed: legal(Random(seed)))
BASE = "NPROC_PER_NODE=8 megatron rlhf --rlhf_type grpo --model m "


def read(text: str, name: str = "run.sh", **more: Any) -> Imported:
    return import_config(text, name, FIELDS, **more)


def test_rows_that_the_gpus_of_one_model_cannot_share_are_refused() -> None:
    """``trainers/grpo_trainer.py:1357``: 2 rows on 4 GPUs that hold one model."""
    knobs = {
        "training_engine": "megatron", "rollout_engine": "vllm", "training_tensor_parallel_size": 4,
        "micro_batch_size": 1, "gradient_accumulation_steps": 2, "steps_per_generation": 2, "num_generations": 2,
    }  # fmt: skip
    assert [v.rule for v in check(knobs, machine(4, ModelFacts()), Configuration(knobs))] == ["swift_megatron_rows"]


@pytest.mark.parametrize(("own", "knobs", "words"), of("arguments_beside_knobs_that_it_refuses"))
def test_arguments_beside_knobs_that_it_refuses(own: dict[str, Any], knobs: dict[str, Any], words: str) -> None:
    beside = {"training_engine": "megatron", "num_generations": 8, **knobs}
    assert [words in found.sentence for found in check_passthrough(own, beside, machine(1))] == [True]


@examples(60, 250)
@given(case=ANY)
def test_a_legal_configuration_can_be_read_back(case: Combination) -> None:
    export = ms_swift.export(case.wanted())
    text = export.files["grpo.yaml"]
    assert "swift.cli._megatron.main" in export.command.argv
    same(case, read_back(export, "grpo.yaml"))
    found = read_keys(text, "grpo.yaml")
    assert all(key.startswith("megatron.") for key in found)
    assert {key for key in found if key not in FIELDS} == set(), "every argument is one of Megatron-SWIFT's"


OWN = "# mine\nNPROC" + EXAMPLES["moe_server_lora.sh"].text.partition("NPROC")[2] + "echo done\n"


@examples(40, 120)
@given(case=ANY)
def test_so_can_a_script_that_was_edited(case: Combination) -> None:
    before = read(OWN)
    knobs = {**before.knobs, "rollout_mode": "colocate", **case.configuration}  # a study keeps what nobody moves
    case = replace(case, configuration=Configuration(acting(knobs, "ms_swift")))
    export = ms_swift.export(case.wanted(user_config=OWN, own_data=True, passthrough=before.passthrough, folder="/me"))
    same(case, read_back(export, "run.sh"))
    text = export.files["run.sh"]
    assert "# mine" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""
    kept = read(text).passthrough
    assert {key: kept.get(key) for key in before.passthrough} == dict(before.passthrough)


def read_back(export: ms_swift.Export, name: str) -> Configuration:
    server = {"server": export.files[SERVER], "server_name": "server.sh"} if export.server else {}
    return Configuration(read(export.files[name], name, **server).knobs)


def same(case: Combination, found: Configuration) -> None:
    """Equal, but for knobs at Megatron-SWIFT's own value and for the engine's length, which is said anyway."""
    unset = {**defaults("ms_swift"), **UNSET}
    for name in {*found, *case.configuration}:
        here, there = (acting(side, "ms_swift").get(name, unset.get(name)) for side in (found, case.configuration))
        free = name == "max_model_len" and there is None and here == LONGEST
        assert here == there or free, (name, here, there)


def test_every_knob_of_megatron_is_tried() -> None:
    drawn = [legal(Random(seed)).configuration for seed in range(120)]
    tried = {name for each in drawn for name in each}
    assert tried >= {*OF_MEGATRON, *VALUES, ENGINE_KNOB}
    assert not {*OF_MEGATRON, ENGINE_KNOB} & SUPPORTED
    assert not {name for name in TORCH if "ms_swift" not in KNOBS[name].frameworks} & {*ARGUMENTS}
    assert {key for key in KEYS if f"megatron.{key}" not in FIELDS} == {
        "vllm_data_parallel_size", "vllm_disable_custom_all_reduce", "vllm_speculative_config",
    }  # fmt: skip


def test_a_run_of_the_one_is_not_made_one_of_the_other() -> None:
    case = legal(Random(1))
    for text, words in (
        ("swift rlhf --rlhf_type grpo --model m", "a run of `swift rlhf` cannot be changed to one of `megatron rlhf`"),
        (BASE, "a run of `megatron rlhf` cannot be changed to one of `swift rlhf` in place"),
    ):
        other = Configuration({}) if text == BASE else case.configuration
        with pytest.raises(ValueError, match=words):
            ms_swift.export(replace(case.wanted(user_config=text), configuration=other))


def test_what_it_cannot_be_told_is_refused_when_it_is_written() -> None:
    case = legal(Random(2))
    for changes, words in (
        ({"precision": "fp32"}, "precision fp32: Megatron-SWIFT computes in bf16 or fp16"),
        ({"rollout_engine": "transformers"}, "rollout_engine transformers: Megatron-SWIFT generates with vllm only"),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 3}, "serves whole updates"),
    ):
        with pytest.raises(ValueError, match=words):
            ms_swift.export(replace(case.wanted(), configuration=case.configuration.with_(**changes)))


def test_an_ms_swift_that_does_not_say_its_arguments_is_told() -> None:
    alone = {key: field for key, field in FIELDS.items() if not key.startswith("megatron.")}
    with pytest.raises(ConfigError, match="does not say which arguments `megatron rlhf` takes"):
        import_config(BASE, "run.sh", alone)
