"""What an exported ms-swift run is made of."""

from __future__ import annotations

import ast
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from search_spaces.configuration import Configuration
from tests.support.exports import export_request
from tests.support.imports import of
from tests.support.swift_fields import FIELDS
from trainer.child.contract import Protocol, RewardSpec, TrialSpec
from trainer.child.frameworks.ms_swift.arguments import added
from trainer.frameworks import ms_swift
from trainer.frameworks.common.exported import RUN, Export, ExportRequest
from trainer.frameworks.ms_swift.import_config import import_config
from trainer.frameworks.ms_swift.render import OBJECTIVE, server_arguments, server_command

SERVER = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 2, "rollout_data_parallel_size": 2}


def wanted(**changes: Any) -> ExportRequest:
    configuration = Configuration({"micro_batch_size": 4, "precision": "fp32", "master_weights": "fp32"})
    rewards = (RewardSpec("reasoning_gym", "chain_sum", options={"seed": 1}),)
    return export_request(**{"configuration": configuration, "rewards": rewards, "device": "cpu", **changes})


def arguments(export: Export) -> dict[str, Any]:
    return dict(yaml.safe_load(export.files["grpo.yaml"]))


def test_every_argument_is_one_ms_swift_has_and_of_its_type() -> None:
    export = ms_swift.export(wanted(added={"model_type": "qwen2", "template": "dummy"}))
    found = arguments(export)
    assert set(found) - {"ENV"} <= set(FIELDS)
    read = import_config(export.files["grpo.yaml"], "grpo.yaml", FIELDS)
    assert read.knobs["micro_batch_size"] == 4
    assert read.knobs["gradient_accumulation_steps"] == 4


def test_nothing_of_the_objective_is_left_to_defaults() -> None:
    found = arguments(ms_swift.export(wanted()))
    assert {key: found[key] for key in OBJECTIVE} == dict(OBJECTIVE)
    own = arguments(ms_swift.export(wanted(passthrough={"beta": 0.01, "tuner_type": "lora", "lora_rank": 4})))
    assert (own["beta"], own["tuner_type"], own["lora_rank"]) == (0.01, "lora", 4)


def test_the_plugin_holds_the_rewards_the_prompts_and_the_seams() -> None:
    configuration = Configuration({"micro_batch_size": 4, "logprob_rows": 2})
    export = ms_swift.export(wanted(configuration=configuration))
    assert export.seams == {"logprob_rows": 2}
    assert {"autotune_plugin.py", "autotune_reward.py", "autotune_seams.py", "run.sh", "grpo.yaml"} == set(export.files)
    for name, text in export.files.items():
        if name.endswith(".py"):
            ast.parse(text)
    plugin = export.files["autotune_plugin.py"]
    assert "_register('chain_sum', 'autotune_reward.chain_sum')" in plugin
    assert "autotune_seams.install({'logprob_rows': 2})" in plugin
    assert arguments(export)["reward_funcs"] == ["chain_sum"]
    assert arguments(export)["external_plugins"] == ["autotune_plugin.py"]
    assert export.prompts


def test_a_pass_of_a_whole_micro_batch_needs_no_seam() -> None:
    assert ms_swift.export(wanted(configuration=Configuration({"micro_batch_size": 4, "logprob_rows": 4}))).seams == {}


def test_ms_swifts_own_rewards_and_the_users_plugins_stay() -> None:
    script = "swift rlhf --rlhf_type grpo --model one --external_plugins mine.py --reward_funcs mine --dataset d.jsonl"
    before = import_config(script, "run.sh", FIELDS)
    rewards = (RewardSpec("ms_swift", "mine"),)
    asked = wanted(
        user_config=script, own_data=True, passthrough=before.passthrough, rewards=rewards, folder="/home/me"
    )
    export = ms_swift.export(asked)
    assert set(export.files) == {"run.sh"}
    text = export.files["run.sh"]
    assert "--external_plugins mine.py" in text
    assert "--reward_funcs mine" in text
    assert "cd /home/me || exit 1" in text
    assert "--per_device_train_batch_size 4" in text
    assert export.diff.startswith("--- your configuration")
    assert not export.prompts


def test_other_rewards_go_beside_the_users_plugins() -> None:
    script = "#!/bin/sh\nswift rlhf --rlhf_type grpo --model one --external_plugins a.py --reward_funcs x --dataset d"
    before = import_config(script, "run.sh", FIELDS)
    text = ms_swift.export(wanted(user_config=script, passthrough=before.passthrough)).files["run.sh"]
    assert '--external_plugins a.py "$here"/autotune_plugin.py' in text
    assert '--dataset "$here"/prompts/train.jsonl' in text
    assert "--reward_funcs chain_sum" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("named", ["plugin.py", "rewards/plugin.py"])
def test_a_plugin_of_the_users_is_never_taken_for_the_exported_one(named: str) -> None:
    """ms-swift's examples call theirs plugin.py, and ms-swift imports plugins by the names of their files."""
    script = f"swift rlhf --rlhf_type grpo --model one --external_plugins {named} --reward_funcs brevity --dataset d"
    passed = import_config(script, "run.sh", FIELDS).passthrough
    own = (RewardSpec("ms_swift", "brevity", "/home/me"),)
    made = ms_swift.export(wanted(user_config=script, passthrough=passed, rewards=own, folder="/home/me"))
    assert f'--external_plugins {named} "$here"/autotune_plugin.py' in made.files["run.sh"]
    assert "plugin.py" not in made.files
    assert "autotune_plugin.py" in made.files
    whole = ms_swift.export(wanted(passthrough=passed, rewards=own))
    assert arguments(whole)["external_plugins"] == [named, "autotune_plugin.py"]


@pytest.mark.parametrize("yaml_text", [True, False])
def test_weights_of_rewards_that_the_command_line_replaced_go(yaml_text: bool) -> None:
    keys = {"rlhf_type": "grpo", "model": "one", "dataset": "d", "reward_funcs": "a b", "reward_weights": "1.0 0.3"}
    words = " ".join(f"--{key} {value}" for key, value in keys.items())
    file = "rlhf_type: grpo\nmodel: one\ndataset: [d]\nreward_funcs: [a, b]\nreward_weights: [1.0, 0.3]\n"
    text = file if yaml_text else f"swift rlhf {words}"
    passed = import_config(text, "x.yaml" if yaml_text else "x.sh", FIELDS).passthrough
    replaced = wanted(user_config=text, passthrough={k: v for k, v in passed.items() if k != "reward_weights"})
    made = ms_swift.export(replaced).files
    assert "reward_weights" not in made.get("grpo.yaml", "") + made["run.sh"]
    kept = wanted(
        user_config=text, passthrough=passed, rewards=(RewardSpec("ms_swift", "a"), RewardSpec("ms_swift", "b"))
    )
    made = ms_swift.export(kept).files
    assert "reward_weights" in made.get("grpo.yaml", "") + made["run.sh"]


def test_what_a_trial_had_to_add_stands_in_the_users_own_run_too() -> None:
    """Else the run would not find the model's kind, or put plain prompts into a chat template."""
    script = "swift rlhf --rlhf_type grpo --model one --template mine --reward_funcs x --dataset d"
    before = import_config(script, "run.sh", FIELDS)
    added = {"model_type": "qwen2", "template": "dummy", "use_chat_template": "false"}
    export = ms_swift.export(wanted(user_config=script, passthrough=before.passthrough, added=added))
    own = import_config(export.files["run.sh"], "run.sh", FIELDS).passthrough
    assert (own["model_type"], own["template"], own["use_chat_template"]) == ("qwen2", "mine", False)
    assert "RAW = True" in export.files["autotune_plugin.py"]


def test_a_model_of_one_type_with_several_templates_is_given_one(tmp_path: Path, monkeypatch: Any) -> None:
    """ms-swift finds the type of a Qwen2.5-VL by its architecture, and then asks for ``--template``."""
    spec: Any = SimpleNamespace(passthrough={})
    (tmp_path / "config.json").write_text("{}")
    types = {"vl": SimpleNamespace(candidate_templates=["one", "other"])}
    theirs: dict[str, Any] = {"get_matched_model_meta": lambda _: None, "get_matched_model_types": lambda _: [*types]}
    for name in ("swift", "swift.model", "swift.model.model_meta"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(MODEL_MAPPING=types, **theirs))
    own = added(spec, str(tmp_path), raw=True)
    assert own == {"model_type": "vl", "template": "dummy", "use_chat_template": False}


@pytest.mark.parametrize("entry", ["-m swift.cli.rlhf", "swift/cli/rlhf.py"])
def test_one_process_that_becomes_several_is_started_by_what_starts_several(entry: str) -> None:
    """``swift.cli.rlhf`` reads no ``NPROC_PER_NODE`` (swift/cli/main.py does)."""
    script = f"NPROC_PER_NODE=8 python3 {entry} --rlhf_type grpo --model one --reward_funcs x --dataset d\n"
    before = import_config(script, "run.sh", FIELDS)
    assert before.processes == 1
    assert any("starts one process" in note for note in before.notes)
    for count, entered in ((1, entry), (2, entry.replace("rlhf", "main") + " rlhf")):
        asked = wanted(user_config=script, passthrough=before.passthrough, world_size=count)
        assert f"python3 {entered} --rlhf_type" in ms_swift.export(asked).files["run.sh"]


@pytest.mark.parametrize("end", ["", " > log.txt 2>&1", " '--seed' 3", ' "$@"', " $@ > log.txt"])
def test_a_script_is_run_by_its_interpreter_and_takes_more_arguments(tmp_path: Path, end: str) -> None:
    """What ``verify`` adds has to arrive, and wins where it stands last; once, whoever passed it on already."""
    script = f"#!/bin/sh\nswift rlhf --rlhf_type grpo --model one --reward_funcs x --dataset d{end}\n"
    before = import_config(script, "run.sh", FIELDS)
    environment = tmp_path / "an env" / "bin"
    environment.mkdir(parents=True)
    swift = environment / "swift"
    swift.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{tmp_path}/told'\n")
    swift.chmod(0o755)
    asked = wanted(
        user_config=script, passthrough=before.passthrough, python=str(environment / "python"), folder=str(tmp_path)
    )
    (tmp_path / "run.sh").write_text(ms_swift.export(asked).files["run.sh"])
    subprocess.run(["sh", str(tmp_path / "run.sh"), "--output_dir", "else where"], check=True)
    argv = (tmp_path / "told").read_text().splitlines()
    assert argv[:3] == ["rlhf", "--rlhf_type", "grpo"]
    assert (argv.count("--output_dir"), argv.count("--per_device_train_batch_size")) == (1, 1)
    assert ("else where" in argv) or "$@ >" in script  # unquoted it is two words, as the user has it


def test_a_server_is_started_with_what_the_trainer_is_told() -> None:
    configuration = Configuration(
        {**SERVER, "max_num_seqs": 64, "custom_all_reduce": True, "weight_sync_bucket_mib": 64}
    )
    export = ms_swift.export(wanted(configuration=configuration, device="cuda", world_size=2))
    assert export.server
    words = shlex.split(export.files["server.sh"].splitlines()[-1])
    assert words[1:5] == ["/env/bin/python", "-m", "swift.cli.main", "rollout"]
    options = dict(zip(words[5:-1:2], words[6::2], strict=False))
    assert options["--vllm_data_parallel_size"] == "2"
    assert options["--vllm_tensor_parallel_size"] == "1"
    assert options["--vllm_max_num_seqs"] == "64"
    assert options["--vllm_disable_custom_all_reduce"] == "false"
    assert options["--vllm_max_model_len"] == "96"
    assert "SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE=64" in export.files["server.sh"]
    found = arguments(export)
    assert (found["vllm_mode"], found["vllm_server_port"], found["vllm_server_host"]) == (
        "server",
        [8000],
        ["127.0.0.1"],
    )
    assert found["ENV"]["NPROC_PER_NODE"] == "2"
    for name in ("run.sh", "server.sh"):
        assert "cut -s -d, -f" in export.files[name]


@pytest.mark.parametrize("knobs", [{}, {"rollout_gpus": 1, "rollout_data_parallel_size": 1}])
def test_a_script_that_starts_its_server_too_is_not_edited(knobs: dict[str, int]) -> None:
    """Its server would run beside the export's, or beside a colocated engine; without ``&`` nothing would train."""
    training = (
        "swift rlhf --rlhf_type grpo --model one --reward_funcs x --dataset d --use_vllm true --vllm_mode server\n"
    )
    script = f"CUDA_VISIBLE_DEVICES=3 swift rollout --model one\n{training}"
    configuration = Configuration({**SERVER, **knobs} if knobs else {"rollout_engine": "vllm"})
    asked = wanted(configuration=configuration, device="cuda", world_size=3, user_config=script)
    export = ms_swift.export(asked)
    assert "swift rollout" not in export.files["run.sh"]
    assert "per_device_train_batch_size" in export.files["grpo.yaml"]
    assert ("server.sh" in export.files) is bool(knobs)
    assert (
        "# the training" in ms_swift.export(replace(asked, user_config=f"# the training\n{training}")).files["run.sh"]
    )
    with pytest.raises(ValueError, match="and no rollout server, can be exported"):
        ms_swift.export(replace(asked, nodes=2, world_size=6))


def test_of_several_nodes_the_users_script_starts_the_processes() -> None:
    """The first node trains with fewer, which only its own script says; there the server has the last GPU."""
    script = (
        "export NNODES=8\n[ $NODE_RANK = 0 ] && export NPROC_PER_NODE=7 || export NPROC_PER_NODE=8\n"
        "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n"
        "swift rlhf --rlhf_type grpo --model one --reward_funcs x --dataset d --use_vllm true --vllm_mode server\n"
    )
    configuration = Configuration({**SERVER, "rollout_gpus": 1, "rollout_data_parallel_size": 1})
    asked = wanted(configuration=configuration, device="cuda", world_size=63, nodes=8, user_config=script)
    files = ms_swift.export(asked).files
    for line in script.splitlines()[:3]:
        assert line in files["run.sh"]
    assert "-f8-8" in files["server.sh"]
    with pytest.raises(ValueError, match="of 8 nodes only a script"):
        ms_swift.export(replace(asked, user_config=""))


def test_replicas_that_do_not_fill_the_server_are_refused() -> None:
    with pytest.raises(ValueError, match="is not rollout_gpus 2"):
        server_arguments({**SERVER, "rollout_data_parallel_size": 1}, "m", 1, longest=9)
    assert server_command("python", {"model": "m", "port": 1})[2:] == (
        "swift.cli.main",
        "rollout",
        "--model",
        "m",
        "--port",
        "1",
    )


def test_several_processes_are_said_in_the_file() -> None:
    export = ms_swift.export(wanted(configuration=Configuration({"zero_stage": 2}), device="cuda", world_size=4))
    found = arguments(export)
    assert found["ENV"] == {"NPROC_PER_NODE": "4", "OMP_NUM_THREADS": "1"}
    zero = found["deepspeed"]["zero_optimization"]
    assert (zero["stage"], zero["reduce_bucket_size"], zero["overlap_comm"]) == (2, 200_000_000, False)


def test_ranks_that_share_sequences_are_counted_once() -> None:
    """Rows per update stay: ms-swift multiplies the accumulation by the ranks that share a sequence."""
    knobs = Configuration({"micro_batch_size": 2, "sequence_parallel_size": 2})
    settings, _, _ = ms_swift.settings(knobs, 32, 4, device="cuda")
    assert settings["gradient_accumulation_steps"] == 4
    assert 2 * (4 // 2) * (settings["gradient_accumulation_steps"] * 2) == 32


@pytest.mark.parametrize(("knobs", "said"), of("what_it_has_no_setting_for_is_refused_by_name"))
def test_what_it_has_no_setting_for_is_refused_by_name(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ms_swift.settings(Configuration(knobs), 16, 4)


def rendered(knobs: dict[str, Any]) -> TrialSpec:
    return ms_swift.render(
        trial="1/0",
        configuration=Configuration(knobs),
        model="/m",
        prompts="/p.jsonl",
        rewards=(),
        rows_per_update=16,
        max_prompt_length=32,
        max_completion_length=64,
        protocol=Protocol(),
        passthrough={"beta": 0.04, "output_dir": "mine", "report_to": ["wandb"]},
    )


def test_a_trial_beside_a_server_is_told_to_ask_it() -> None:
    spec = rendered(dict(SERVER))
    assert (spec.settings["use_vllm"], spec.settings["vllm_mode"]) == (True, "server")
    assert rendered({**SERVER, "rollout_engine": "transformers"}).settings["use_vllm"] is False


def test_a_rendered_trial_says_everything() -> None:
    spec = rendered({"micro_batch_size": 2, "host_allocator": "keep", "logprob_rows": 1})
    assert spec.framework == "ms_swift"
    assert spec.settings["gradient_accumulation_steps"] == 8
    assert spec.seams == {"logprob_rows": 1}
    assert "GLIBC_TUNABLES" in spec.environment
    assert (spec.passthrough["beta"], spec.passthrough["tuner_type"]) == (0.04, "full")
    assert not {"output_dir", "report_to"} & set(spec.passthrough)


def test_what_a_preset_leaves_to_ms_swift_stays_left_to_it_until_a_knob_says_it() -> None:
    """Or trial 0 would not be what the user runs today."""
    script = "#!/bin/sh\nNPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model m --reward_funcs x --deepspeed zero3\n"
    before = import_config(script, "run.sh", FIELDS)
    common: dict[str, Any] = {"device": "cuda", "passthrough": before.passthrough}
    plain, _, _ = ms_swift.settings(Configuration({**before.knobs, "micro_batch_size": 2}), 16, 4, **common)
    zero = plain["deepspeed"]["zero_optimization"]
    assert (zero["stage"], zero["reduce_bucket_size"], zero["sub_group_size"]) == (3, "auto", 1_000_000_000)
    assert zero["stage3_param_persistence_threshold"] == "auto"
    tuned = Configuration({**before.knobs, "micro_batch_size": 2, "zero_reduce_bucket": 50_000_000})
    found, _, _ = ms_swift.settings(tuned, 16, 4, **common)
    assert found["deepspeed"]["zero_optimization"]["reduce_bucket_size"] == 50_000_000


@pytest.mark.parametrize(
    "script",
    [
        'A=(--model one --external_plugins mine.py --reward_funcs mine)\nswift rlhf --rlhf_type grpo "${A[@]}"\n',
        "docker run bash -c 'swift rlhf --rlhf_type grpo --model one --external_plugins mine.py --reward_funcs mine'\n",
    ],
)
def test_beside_a_script_that_cannot_be_edited_in_place_a_whole_file_is_written(script: str) -> None:
    before = import_config(script, "run.sh", FIELDS)
    rewards = (RewardSpec("ms_swift", "mine"),)
    made = ms_swift.export(
        wanted(user_config=script, own_data=True, passthrough=before.passthrough, rewards=rewards, folder="/home/me")
    )
    said = yaml.safe_load(made.files["grpo.yaml"])
    assert (said["rlhf_type"], said["external_plugins"], said["reward_funcs"]) == (
        "grpo",
        ["mine.py", "autotune_plugin.py"],
        ["mine"],
    )
    assert made.prompts, "it cannot name the script's own prompts"
    assert (made.diff, made.command.folder) == ("", "/home/me")
    assert "swift.cli.main rlhf" in made.files[RUN]
