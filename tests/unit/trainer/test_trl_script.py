"""A shell script that starts TRL with options is read, or says in one sentence what to give instead."""

from __future__ import annotations

import pytest

from tests.support.imports import of
from tests.support.trl_fields import FIELDS
from trainer.frameworks.common.accelerate_file import AccelerateFile
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import ExportRequest
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.trl.export import export
from trainer.frameworks.trl.import_config import import_config, named_files, read_keys

OPTIONS = """--model_name_or_path org/model --dataset_name org/prompts --reward_funcs think_format_reward \\
  --use_vllm --vllm_mode colocate --vllm_gpu_memory_utilization=0.4 --bf16 --per_device_train_batch_size 4 \\
  --num-generations 8 --learning_rate 1e-6 --use_peft --lora_target_modules q_proj v_proj --output_dir $HOME/out \\
  --model_init_kwargs '{"revision": "v1"}' --reward_weights 1.0
"""
LAUNCH = f"export NCCL_DEBUG=WARN\nCUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 grpo.py {OPTIONS}"


def test_options_are_keys() -> None:
    found = import_config(LAUNCH, "run.sh", FIELDS)
    assert found.knobs == {
        "rollout_engine": "vllm",
        "rollout_mode": "colocate",
        "gpu_memory_utilization": 0.4,
        "precision": "bf16",
        "micro_batch_size": 4,
        "num_generations": 8,
    }
    assert (found.model, found.rewards, found.processes) == ("org/model", ("think_format_reward",), 2)
    assert found.dataset == {"dataset_name": "org/prompts"}
    own = found.passthrough
    assert (own["learning_rate"], own["lora_target_modules"]) == (1e-6, ["q_proj", "v_proj"])
    assert (own["reward_weights"], own["env"]) == ([1.0], {"NCCL_DEBUG": "WARN"})
    assert own["model_init_kwargs"] == {"revision": "v1"}
    assert "output_dir" not in own
    assert ["output_dir: $HOME" in note for note in found.notes] == [True]
    assert found.lines["vllm_mode"] == 3
    keys = read_keys(LAUNCH, "run.sh")
    assert (keys["use_vllm"], keys["vllm_mode"], keys["lora_target_modules"]) == (
        True,
        "colocate",
        ["q_proj", "v_proj"],
    )


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("trl grpo", 0),
        ("accelerate launch --num_processes=4 my/grpo.py", 4),
        ("torchrun --nproc_per_node 2 --nnodes 2 my/grpo.py", 4),
        ("python -m trl.scripts.grpo", 0),
        ("python grpo.py", 0),
    ],
)
def test_however_the_script_is_started(command: str, processes: int) -> None:
    text = f"trl vllm-serve --model m &\npython make_data.py --out x\n{command} --num_generations 4"
    text += " --use_vllm true --vllm_mode server"
    found = import_config(text, "run.sh", FIELDS)
    assert (found.knobs["num_generations"], found.processes) == (4, processes)
    assert is_script(text)


def test_a_json_file_that_an_option_names_is_read() -> None:
    text = "trl grpo --deepspeed ds/zero2.json --use_vllm true"
    assert named_files(text, "run.sh") == {"deepspeed": ("ds/zero2.json", 1)}
    files = {"deepspeed": '{"zero_optimization": {"stage": 2}}'}
    assert import_config(text, "run.sh", FIELDS, files=files).knobs["zero_stage"] == 2


@pytest.mark.parametrize(("text", "says"), of("what_cannot_be_read_says_what_to_do"))
def test_what_cannot_be_read_says_what_to_do(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        import_config(text, "run.sh", FIELDS)


@pytest.mark.parametrize("name", ["grpo.yaml", "run.sh"])
def test_what_trl_hands_on_to_the_launch_is_read_from_the_same_place(name: str) -> None:
    """``trl grpo`` gives ``accelerate launch`` what its own parser does not know (trl/cli/commands/training.py)."""
    given = {"num_processes": "3", "accelerate_config": "zero3", "num_generations": "4"}
    script = "trl grpo " + " ".join(f"--{key} {value}" for key, value in given.items())
    text = script if name == "run.sh" else "".join(f"{key}: {value}\n" for key, value in given.items())
    found = import_config(text, name, FIELDS)
    assert (found.processes, found.knobs["zero_stage"], found.knobs["num_generations"]) == (3, 3, 4)
    assert not {"num_processes", "accelerate_config"} & {*found.passthrough, *read_keys(text, name)}
    with pytest.raises(ConfigError, match="zero33 is no file, and TRL has zero1, zero2"):
        import_config(text.replace("zero3", "zero33"), name, FIELDS)
    own = text.replace("zero3", "my/file.yaml")
    assert named_files(own, name)["accelerate_config"][0] == "my/file.yaml"
    launch = {"accelerate_config": "distributed_type: MULTI_GPU\nnum_processes: 5\n"}
    assert import_config(own, name, FIELDS, files=launch).processes == 3, "a number of its own goes before the file's"
    without = own.replace("num_processes: 3\n", "").replace("--num_processes 3 ", "")
    assert import_config(without, name, FIELDS, files=launch).processes == 5


def test_the_file_of_the_launch_may_be_given_beside() -> None:
    beside = AccelerateFile(deepspeed={"zero_optimization": {"stage": 3}}, processes=8, name="z.yaml")
    text = "accelerate launch --config_file z.yaml grpo.py --num_generations 4"
    found = import_config(text, "run.sh", FIELDS, accelerate=beside)
    assert (found.knobs["zero_stage"], found.processes) == (3, 8)


def test_an_export_beside_a_script_is_a_whole_file() -> None:
    found = import_config(LAUNCH, "run.sh", FIELDS)
    wanted = ExportRequest(
        title="t", configuration=found.knobs, python="python", model="org/model", rewards=(), rows_per_update=8,
        max_completion_length=64, passthrough=found.passthrough, user_config=LAUNCH, own_data=True,
    )  # fmt: skip
    made = export(wanted)
    assert "lora_target_modules" in made.files["grpo.yaml"]
    assert made.prompts, "it cannot name the script's own prompts"


@pytest.mark.parametrize(
    ("option", "field", "give"),
    [
        ("--model_name_or_path $1", "model", "--model"),
        ("--reward_funcs $R", "rewards", "--reward"),
        ("--dataset_name ${D:?}", "data", "--data"),
        ("--max_completion_length $L", "max_completion_length", "--max-completion-length"),
        ("--per_device_train_batch_size $B", "set.micro_batch_size", "--set micro_batch_size=..."),
    ],
)
def test_what_the_command_line_can_give_is_asked_for(option: str, field: str, give: str) -> None:
    asked = import_config(f"trl grpo {option} --num_generations 4", "run.sh", FIELDS).asked
    assert list(asked) == [field]
    assert f"is known to a shell only; give {give}, or write its value out." in asked[field]


def test_a_micro_batch_that_a_rollout_is_counted_in_is_to_be_written_out() -> None:
    text = "trl grpo --generation_batch_size 16 --per_device_train_batch_size $B"
    with pytest.raises(ConfigError, match="known to a shell only; write its value out"):
        import_config(text, "run.sh", FIELDS)
