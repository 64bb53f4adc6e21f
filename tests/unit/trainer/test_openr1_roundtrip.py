"""What is exported to Open-R1 is the same configuration when it is imported again."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue
from search_spaces.knobs import defaults
from search_spaces.legality import check
from tests.support.exports import export_request
from tests.support.openr1_cases import MULTI, OWN, ZERO2, ZERO3, OpenR1Case, cases
from tests.support.properties import examples
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.common.exported import ACCELERATE, DEEPSPEED, RUN, SERVER, Export, ExportRequest
from trainer.frameworks.open_r1 import export, unsupported
from trainer.frameworks.open_r1.export import RECIPE
from trainer.frameworks.open_r1.import_config import import_config
from trainer.frameworks.open_r1.keys import FIELDS, KEYS, OBJECTIVE, acting

LONGEST = 512 + 1024


def wanted(configuration: dict[str, KnobValue] | Configuration, processes: int = 8, **changes: Any) -> ExportRequest:
    base: dict[str, Any] = {
        "configuration": Configuration(dict(configuration)),
        "rewards": (RewardSpec("open_r1", "accuracy"), RewardSpec("open_r1", "format")),
        "model": "Qwen/Qwen2.5-1.5B-Instruct",
        "rows_per_update": 512,
        "max_prompt_length": 512,
        "max_completion_length": 1024,
        "world_size": processes,
        "checkout": "/src/open-r1",
    }
    return export_request(**{**base, **changes})


def read_again(made: Export) -> Imported:
    files = {"deepspeed_config_file": made.files[DEEPSPEED]} if DEEPSPEED in made.files else {}
    return import_config(
        made.files[RECIPE], RECIPE, files=files, accelerate=made.files[ACCELERATE], server=made.files.get(SERVER, "")
    )


def difference(case: OpenR1Case, found: Imported) -> dict[str, tuple[Any, Any]]:
    """Knobs that came back changed; what was not set and came back as Open-R1 has it is no change."""
    unset = {**defaults("open_r1"), "max_model_len": LONGEST, "gpu_memory_utilization": 0.3}
    here, there = acting(case.configuration), dict(found.knobs)
    names = {*here, *there}
    return {
        name: (here.get(name), there.get(name))
        for name in names
        if there.get(name, unset.get(name)) != here.get(name, unset.get(name))
        and not (name == "steps_per_generation" and name not in here)
    }


@examples(100, 300)
@given(cases())
def test_an_exported_configuration_can_be_imported(case: OpenR1Case) -> None:
    assert [v.sentence for v in check(case.configuration, case.resources)] == []
    made = export(wanted(case.configuration, case.processes))
    found = read_again(made)
    assert difference(case, found) == {}
    assert found.processes == case.processes
    assert not [note for note in found.notes if "no such key" in note]
    assert found.rewards == ("accuracy", "format")
    assert (found.max_prompt_length, found.max_completion_length) == (512, 1024)


@examples(40, 100)
@given(cases())
def test_a_users_own_recipe_keeps_all_that_is_no_knob(case: OpenR1Case) -> None:
    own = {"reward_weights": yaml.safe_load(OWN)["reward_weights"]}
    made = export(wanted(case.configuration, case.processes, user_config=OWN, own_data=True, passthrough=own))
    found = read_again(made)
    assert difference(case, found) == {}
    replaced = export(wanted(case.configuration, case.processes, user_config=OWN, own_data=True))
    assert yaml.safe_load(replaced.files[RECIPE])["reward_weights"] is None, "they were of rewards that went"
    before, after = yaml.safe_load(OWN), yaml.safe_load(made.files[RECIPE])
    kept = {key: value for key, value in before.items() if key not in KEYS and not key.startswith("gradient_check")}
    assert {key: after[key] for key in kept} == kept
    assert "# no flash attention here" in made.files[RECIPE]


@examples(50, 150)
@given(cases(), st.sampled_from([ZERO2, ZERO3, MULTI]))
def test_a_users_own_accelerate_file_is_changed_in_place(case: OpenR1Case, own: str) -> None:
    made = export(wanted(case.configuration, case.processes, user_config=OWN, own_data=True, accelerate=own))
    found = read_again(made)
    assert difference(case, found) == {}
    assert found.processes == case.processes
    after = made.files[ACCELERATE]
    assert "# ours" in after
    assert yaml.safe_load(after)["downcast_bf16"] == "no"
    if "deepspeed_config_file" in after:
        assert yaml.safe_load(after)["mixed_precision"] is None
        assert "zero_stage" not in after


@examples(40, 100)
@given(cases())
def test_every_key_of_a_recipe_is_one_of_open_r1(case: OpenR1Case) -> None:
    recipe = yaml.safe_load(export(wanted(case.configuration, case.processes)).files[RECIPE])
    assert set(recipe) <= set(FIELDS)
    assert all(FIELDS[key].typed(value) == value for key, value in recipe.items())


@examples(40, 100)
@given(cases())
def test_short_keys_and_a_deepspeed_file_are_never_both_there(case: OpenR1Case) -> None:
    """accelerate 1.4 refuses them together."""
    made = export(wanted(case.configuration, case.processes))
    accelerate = yaml.safe_load(made.files[ACCELERATE])
    sharding = accelerate.get("deepspeed_config", {})
    refused = {"zero_stage", "offload_optimizer_device", "offload_param_device", "zero3_save_16bit_model"}
    if "deepspeed_config_file" in sharding:
        assert not refused & set(sharding)
        assert "mixed_precision" not in accelerate
        assert DEEPSPEED in made.files
        assert "--deepspeed_config_file" in made.command.argv
    else:
        assert DEEPSPEED not in made.files
    assert ("deepspeed_config" in accelerate) == bool(case.configuration["zero_stage"])


@examples(60, 200)
@given(cases(), st.sampled_from(sorted({"max_num_seqs", "chunked_prefill", "sleep_level", "logprob_rows", "fsdp"})))
def test_what_open_r1_has_no_key_for_is_refused_by_name(case: OpenR1Case, name: str) -> None:
    other: dict[str, KnobValue] = {
        "max_num_seqs": 7,
        "chunked_prefill": False,
        "sleep_level": 1,
        "logprob_rows": 1000,
        "fsdp": "fsdp2",
    }
    configuration = case.configuration.with_(**{name: other[name]})
    if name not in acting(configuration):
        return
    assert any(name in sentence for sentence in unsupported(configuration))
    assert any(name in v.sentence for v in check(configuration, case.resources))
    with pytest.raises(ValueError, match=name):
        export(wanted(configuration, case.processes))


def test_the_command_is_open_r1s_own() -> None:
    made = export(wanted({"micro_batch_size": 16, "gradient_accumulation_steps": 4, "zero_stage": 2}))
    assert made.command.argv == (
        "/env/bin/python",
        *("-m", "accelerate.commands.launch", "--config_file", "{here}/accelerate.yaml"),
        *("--num_cpu_threads_per_process", "1", "/src/open-r1/src/open_r1/grpo.py", "--config", "{here}/recipe.yaml"),
    )
    assert made.command.environment["PYTHONPATH"] == "/src/open-r1/src"
    accelerate = yaml.safe_load(made.files[ACCELERATE])
    assert accelerate["deepspeed_config"]["zero_stage"] == 2
    assert accelerate["num_processes"] == 8
    assert "exec /env/bin/python" in made.files[RUN]


def test_a_rollout_server_takes_the_last_gpus() -> None:
    made = export(
        wanted(
            {
                "rollout_engine": "vllm",
                "rollout_mode": "server",
                "rollout_gpus": 1,
                "rollout_data_parallel_size": 1,
                "micro_batch_size": 16,
            },
            3,
        )
    )
    server = made.files[SERVER]
    assert "-m trl.scripts.vllm_serve --model Qwen/Qwen2.5-1.5B-Instruct" in server
    assert "--gpu_memory_utilization 0.9" in server
    assert f"--max_model_len {LONGEST}" in server
    assert "cut -s -d, -f4-4" in server
    assert "cut -s -d, -f1-3" in made.files[RUN]
    assert yaml.safe_load(made.files[RECIPE])["vllm_mode"] == "server"


def test_a_reward_of_ones_own_goes_through_a_launcher() -> None:
    own = (RewardSpec("open_r1", "format"), RewardSpec("reasoning_gym", "chain_sum"))
    made = export(wanted({"micro_batch_size": 16}, rewards=own))
    assert yaml.safe_load(made.files[RECIPE])["reward_funcs"] == ["format", "autotune_reward.chain_sum"]
    assert "{here}/launch.py" in made.command.argv
    compile(made.files["launch.py"], "launch.py", "exec")


def test_without_a_checkout_nothing_is_exported() -> None:
    with pytest.raises(ValueError, match="checkout"):
        export(wanted({"micro_batch_size": 16}, checkout=""))


def test_nothing_of_the_objective_is_left_to_defaults() -> None:
    found = yaml.safe_load(export(wanted({"micro_batch_size": 16})).files[RECIPE])
    assert {key: found[key] for key in OBJECTIVE} == dict(OBJECTIVE)
    assert {
        key: FIELDS[key].default for key in OBJECTIVE if FIELDS[key].default is not None
    }.items() <= OBJECTIVE.items()
    own = yaml.safe_load(export(wanted({"micro_batch_size": 16}, passthrough={"beta": 0.0})).files[RECIPE])
    assert (own["beta"], own["epsilon"]) == (0.0, OBJECTIVE["epsilon"])


@pytest.mark.parametrize("said", [{}, {"top_k": 20}])
def test_tokens_are_cut_off_only_where_the_user_says_so(said: dict[str, int]) -> None:
    """TRL 0.18 considers all of them unless told otherwise; a number here would change what is sampled."""
    found = yaml.safe_load(export(wanted({"micro_batch_size": 16}, passthrough=said)).files[RECIPE])
    assert found.get("top_k") == said.get("top_k")
    assert FIELDS["top_k"].default is None


def test_a_run_on_several_nodes_is_not_exported() -> None:
    with pytest.raises(ValueError, match="a run of Open-R1 on 2 nodes is not exported"):
        export(wanted({"micro_batch_size": 16}, nodes=2))
