"""A misspelt key of verl's is found, and no key that some verl has is called one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_handling import DATASET, INPUTS, MEASURING, REFUSED
from trainer.frameworks.verl.key_tables import FIXED, NATIVE, NOT_IN_VERLS_FILES
from trainer.frameworks.verl.unknown_keys import EARLIER, KEYS, is_known

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUN = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=2 data.train_batch_size=16 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.n=4 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n"
)
ROLLOUT = "actor_rollout_ref.rollout."
SHARE = f"{ROLLOUT}gpu_memory_utilization"


def read(*more: str) -> Imported:
    return import_config(RUN + " ".join(more), "run.sh")


def notes(*more: str) -> list[str]:
    return [note for note in read(*more).notes if "verl 0.9.1" in note]


def problems(text: str, name: str) -> list[str]:
    """What is said of a file, be it read or refused."""
    try:
        return [note for note in import_config(text, name).notes if "no key" in note or "no longer" in note]
    except ConfigError as error:
        return str(error).splitlines()


@pytest.mark.parametrize(("written", "meant"), of("a_misspelt_key_is_refused_by_its_line_with_the_one_that_is_meant"))
def test_a_misspelt_key_is_refused_by_its_line_with_the_one_that_is_meant(written: str, meant: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(f"{written}=1")
    assert str(error.value).startswith(f"run.sh, line 2: verl has no key {written}; did you mean {meant}")
    assert f"(write ++{written} if yours has it)" in str(error.value)
    with pytest.raises(ConfigError, match="did you mean"):
        import_config(f"algorithm.adv_estimator: grpo\n{written}: 1\n", "own.yaml")
    for added in ("+", "++"):
        (note,) = notes(f"{added}{written}=1")
        assert f"line 2: verl 0.9.1 has no key {written}; did you mean {meant}" in note


def test_one_in_a_mapping_is_found_too() -> None:
    with pytest.raises(ConfigError, match=rf"line 2: verl has no key {ROLLOUT}gpu_memory_utilisation; did you mean"):
        read("actor_rollout_ref.rollout={gpu_memory_utilisation:0.5}")
    assert read("actor_rollout_ref.rollout={gpu_memory_utilization:0.5}").knobs["gpu_memory_utilization"] == 0.5
    own = "algorithm: {adv_estimator: grpo}\nactor_rollout_ref:\n  rollout:\n    gpu_memory_utilisation: 0.5\n"
    with pytest.raises(ConfigError, match=rf"own.yaml, line 4: verl has no key {ROLLOUT}gpu_memory_utilisation; did"):
        import_config(own, "own.yaml")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read("data.max_response_len=9", f"{ROLLOUT}gpu_memory_utilisation=0.5", f"{ROLLOUT}top_k=much")
    assert str(error.value).count("did you mean") == 2


def test_a_key_of_a_plugins_or_a_forks_is_given_to_the_trial() -> None:
    assert notes("+my.plugin.key=3", "++actor_rollout_ref.actor.policy_loss.mine=1") == []
    assert read("+my.plugin.key=3").passthrough["my.plugin.key"] == 3
    (note,) = notes("my.plugin.key=3")
    assert note == "run.sh, line 2: verl 0.9.1 has no key my.plugin.key; a trial is given it all the same."
    assert read("my.plugin.key=3").passthrough["my.plugin.key"] == 3


@pytest.mark.parametrize(
    "written",
    [
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        "actor_rollout_ref.actor.optim.override_optimizer_config.fused=true",
        f"+{ROLLOUT}engine_kwargs.vllm.max_model_len_x=4",
        "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True",
        "ray_kwargs.ray_init.address=local",
        "+ray_kwargs.ray_init.runtime_env.env_vars.A=1",
        "hydra.run.dir=/x",
        "custom_reward_function.path=r.py",
    ],
)
def test_where_any_key_may_be_added_nothing_is_said(written: str) -> None:
    assert notes(written) == []


def test_keys_of_earlier_versions_are_told_once_and_not_refused() -> None:
    """Public scripts are of 0.3 to 0.9."""
    offload = "actor_rollout_ref.actor.fsdp_config.grad_offload"
    (note,) = notes(f"{offload}=False", "+reward_model.strategy=fsdp", "ray_init.num_cpus=4")
    assert note.startswith(
        f"run.sh, line 2: verl 0.9.1 no longer has {offload}, reward_model.strategy, ray_init.num_cpu"
    )


def test_a_configuration_of_hydras_begins_with_verls_own() -> None:
    own = "defaults: [ppo_trainer, _self_]\nalgorithm: {adv_estimator: grpo}\n"
    own += "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 1\n"
    found = import_config(own, "own.yaml")
    assert "defaults" not in found.passthrough
    assert not any("defaults" in note for note in found.notes)
    with pytest.raises(ConfigError, match=r"own.yaml, line 1: defaults: prime_trainer: a trial starts from verl's own"):
        import_config(own.replace("ppo_trainer", "prime_trainer"), "own.yaml")
    with pytest.raises(ConfigError, match=r"own.yaml, line 1: defaults: other: a trial starts from verl's own"):
        import_config(own.replace("[ppo_trainer, _self_]", "other"), "own.yaml")


def test_the_table_has_what_other_tables_name() -> None:
    for key in (*NATIVE.values(), *FIXED, *(REFUSED.keys() - EARLIER), *(INPUTS - DATASET), *MEASURING):
        assert is_known(key), key
    fields = json.loads((FIXTURES / "verl_fields.json").read_text())["fields"]
    megatron = json.loads((FIXTURES / "verl_megatron_fields.json").read_text())["keys"]
    assert {key for key in (*fields, *megatron) if not is_known(key) and key not in EARLIER} == set()
    assert NOT_IN_VERLS_FILES.isdisjoint(KEYS)
    assert KEYS.isdisjoint(EARLIER)
    assert (len(KEYS), len(EARLIER)) == (1090, 194)


@examples(60, 400)
@given(st.sampled_from(sorted(key for key in KEYS if is_known(key))), st.data())
def test_a_letter_less_is_never_taken_in_silence(key: str, data: st.DataObject) -> None:
    """It is refused or told of, unless it is a key of its own or stands where any may be added."""
    place, _, name = key.rpartition(".")
    at = data.draw(st.integers(0, len(name) - 1))
    short = ".".join(part for part in (place, name[:at] + name[at + 1 :]) if part)
    if len(name) < 4 or is_known(short) or short in EARLIER:
        return
    assert problems(RUN + f"{short}=1", "run.sh")


@examples(100, 600)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=60))
def test_any_text_is_an_answer(text: str) -> None:
    for written in (f"{text}=1", f"+{text}=1", f"actor_rollout_ref.{text}=1"):
        assert all(
            line.startswith("own.txt") for line in problems(f"algorithm.adv_estimator=grpo\n{written}", "own.txt")
        )
