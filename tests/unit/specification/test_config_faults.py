"""All faults of a configuration at once, each with its line; and none that is only another one's consequence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import FaultsError, UsageError
from autotune.specification.config_faults import Faults, faults_of, read_whole, without_key
from autotune.specification.request import Request
from search_spaces.configuration import Resources
from tests.support import swift_fields, trl_fields
from tests.support.imports import of, text_of
from trainer.child.contract import FailureReason, Result

FIELDS: dict[str, Any] = {"trl": trl_fields.RECORDED["fields"], "ms_swift": swift_fields.RECORDED["fields"]}
GROUPS = "generation_batch_size (4) must be divisible by num_generations (8)."


class Asked:
    """An interpreter that counts how often its framework is asked."""

    def __init__(self, says: str = "", known: bool = True) -> None:
        self.says, self.known, self.asked = says, known, [dict[str, Any]()][:0]

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        return FIELDS[framework] if self.known else None

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        self.asked.append(dict(keys))
        reason = FailureReason.ILLEGAL if self.says else None
        return Result(not self.says, reason, message=self.says, data={"fields": FIELDS[framework]})


def machine(framework: str, gpus: int = 1) -> Resources:
    return Resources(
        gpus=gpus, cpu_cores=8, device="cuda", device_memory=80 << 30, compute_capability=(9, 0), framework=framework
    )


def request(text: str, name: str = "grpo.yaml", framework: str = "trl", **more: Any) -> Request:
    return Request(config=text, config_name=name, folder="/", framework=framework, **more)


def found(text: str, name: str = "grpo.yaml", framework: str = "trl", gpus: int = 1, says: str = "") -> Faults:
    return faults_of(request(text, name, framework), Asked(says), machine(framework, gpus))


TRL = """\
model_name_or_path: organisation/model
dataset_name: organisation/prompts
reward_funcs: [think_format_reward]
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
num_generations: 8
bf16: true
"""
SWIFT = """\
NPROC_PER_NODE=1 \\
swift rlhf --rlhf_type grpo --model organisation/model --tuner_type full --torch_dtype bfloat16 \\
  --dataset x.jsonl --reward_funcs accuracy \\
  --num_infer_worker 4 --learning_rate 1e-6 \\
  --max_completion_length long \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \\
  --num_generations 8 --eval_strategy no
"""
VERL = """\
export WANDB_API_KEY=abc
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=/d/t.parquet \\
  data.train_batch_size=64 data.max_prompt_length=512 data.max_response_length=512 \\
  actor_rollout_ref.model.path=organisation/model actor_rollout_ref.model.use_remove_padding=16 \\
  actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=3 \\
  actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4 \\
  trainer.n_gpus_per_node=2
"""
OPEN_R1 = text_of("openr1_faults.yaml")
THREE = [
    (
        "max_lenght: 12\nnum_train_epochs: many\n" + TRL, "grpo.yaml", "trl", 1,
        [(1, "max_lenght"), (2, "num_train_epochs: expected a number"), (8, "nearest legal: num_generations 4")],
    ),
    (
        SWIFT, "run.sh", "ms_swift", 1,
        [(4, "num_infer_worker"), (5, "max_completion_length: expected a whole number"), (7, "num_generations 4")],
    ),
    (
        OPEN_R1, "recipe.yaml", "open_r1", 1,
        [(6, "num_train_epochs"), (7, "learning_rate: expected a number"), (10, "num_generations 4")],
    ),
    (
        VERL, "run.sh", "verl", 2,
        [(1, "WANDB_API_KEY"), (4, "expected true or false, got 16"), (6, "tensor")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "framework", "gpus", "faults"), THREE, ids=[row[2] for row in THREE])
def test_three_faults_are_told_in_one_go(
    text: str, name: str, framework: str, gpus: int, faults: list[tuple[int, str]]
) -> None:
    got = found(text, name, framework, gpus)
    assert len(got.sentences) == 3, got
    for line, words in faults:
        (one,) = [sentence for sentence in got.sentences if words in sentence]
        assert one.startswith(f"{name}, line {line}: ")
    asked = request(text, name, framework, data="" if framework != "verl" else "/d.jsonl")
    with pytest.raises(FaultsError) as caught:
        read_whole(asked, Asked(), machine(framework, gpus), "", lambda _: None)
    assert caught.value.exit_code == 2
    assert all(words in str(caught.value) for _, words in faults)


def test_our_nearest_values_stand_beside_the_frameworks_own_sentence() -> None:
    got = found(TRL, says=GROUPS)
    assert got.sentences[0] == f"grpo.yaml, line 6: {GROUPS}"
    assert "nearest legal: num_generations 4" in got.sentences[1]
    assert len(got.sentences) == 2


def test_the_framework_is_asked_once_about_the_keys_that_can_be_read() -> None:
    asked = Asked(GROUPS)
    faults_of(request("max_lenght: 12\n" + TRL), asked, machine("trl"))
    assert [("max_lenght" in keys, "num_generations" in keys) for keys in asked.asked] == [(False, True)]
    with pytest.raises(FaultsError):
        read_whole(request(TRL), again := Asked(GROUPS), machine("trl"), "", lambda _: None)
    assert len(again.asked) == 1


def test_what_the_framework_said_of_a_key_that_is_gone_is_not_told() -> None:
    """The first time its keys are not known, and it is asked about all of them."""

    class Strict(Asked):
        def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
            self.says = "invalid float value: 'many'" if keys.get("num_train_epochs") == "many" else GROUPS
            return super().describe(keys, framework)

    asked = Strict(known=False)
    got = faults_of(request("max_lenght: 12\nnum_train_epochs: many\n" + TRL), asked, machine("trl"))
    assert len(got.sentences) == 4
    assert not any("invalid float" in sentence for sentence in got.sentences)
    assert any(GROUPS in sentence for sentence in got.sentences)
    assert len(asked.asked) == 2


def test_a_fault_that_follows_from_another_is_not_told() -> None:
    """Without its micro-batch the batch is another one, which nobody asked for."""
    text = TRL.replace("per_device_train_batch_size: 1", "per_device_train_batch_size: one")
    got = found(text, says=GROUPS)
    assert len(got.sentences) == 1
    assert "line 4: per_device_train_batch_size: expected a whole number" in got.sentences[0]
    got = found(TRL.replace("num_generations: 8", "num_generations: eight"), says=GROUPS)
    assert len(got.sentences) == 1


def test_a_sound_configuration_has_no_fault() -> None:
    text = TRL.replace("num_generations: 8", "num_generations: 4")
    asked = Asked()
    assert faults_of(request(text), asked, machine("trl")) == Faults()
    assert read_whole(request(text), asked, machine("trl"), "", lambda _: None).rows_per_update == 4


def test_a_precision_that_follows_from_another_argument_is_told_at_its_line() -> None:
    text = SWIFT.replace("torch_dtype bfloat16", "torch_dtype float32").replace("--num_infer_worker 4", "")
    cpu = Resources(gpus=0, cpu_cores=8, device="cpu", framework="ms_swift")
    sentences = faults_of(request(text, "run.sh", "ms_swift"), Asked(), cpu).sentences
    assert any(one.startswith("run.sh, line 2: precision fp16 needs a GPU") for one in sentences)


def test_a_model_folder_needs_its_weights_where_a_study_would_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    text = TRL.replace("num_generations: 8", "num_generations: 4").replace("organisation/model", str(tmp_path))
    asked, there = Asked(), machine("trl")
    assert faults_of(request(text), asked, there) == Faults()
    found = faults_of(request(text), asked, there, weights=True)
    assert found.sentences == (f"{tmp_path} holds no weights (*.safetensors or *.bin)",)
    absent = request(text.replace(str(tmp_path), "./absent"))
    assert "no model folder" in faults_of(absent, asked, there).lacking, "it may be on the machine of the study"
    assert "no model folder" in faults_of(absent, asked, there, weights=True).sentences[0]
    (tmp_path / "model.safetensors").write_text("")
    for config, count in (("{}", 0), ('{"vision_config": {}}', 1)):
        (tmp_path / "config.json").write_text(config)
        noted = faults_of(request(text), asked, there, weights=True).notes
        assert len([each for each in noted if "takes images; a trial's prompts are text" in each]) == count


def test_what_start_is_to_be_given_beside_it_is_no_fault() -> None:
    text = TRL.replace("num_generations: 8", "num_generations: 4").replace("dataset_name: organisation/prompts\n", "")
    got = found(text)
    assert got.sentences == ()
    assert "names no dataset" in got.lacking


def test_one_fault_is_the_error_it_always_was() -> None:
    with pytest.raises(UsageError, match=r"^grpo\.yaml, line 1: .*max_lenght") as caught:
        read_whole(request("max_lenght: 12\n" + TRL.replace(": 8", ": 4")), Asked(), machine("trl"), "", lambda _: None)
    assert not isinstance(caught.value, FaultsError)


def test_what_is_no_configuration_at_all_is_one_fault() -> None:
    for text in ("- a\n- b\n", "a: [\n", "just words\n", ""):
        assert len(found(text).sentences) == 1, text


@pytest.mark.parametrize(
    ("text", "name", "sentence", "key", "left"), of("a_key_is_taken_out_by_its_line_and_the_lines_stay")
)
def test_a_key_is_taken_out_by_its_line_and_the_lines_stay(
    text: str, name: str, sentence: str, key: str, left: str
) -> None:
    assert without_key(text, name, sentence) == (left, key)
    assert left.count("\n") == text.count("\n")


@pytest.mark.parametrize("framework", ["trl", "open_r1", "ms_swift", "verl"])
@pytest.mark.parametrize("name", ["train.py", "grpo.ipynb"])
def test_a_python_program_is_refused_as_one(framework: str, name: str) -> None:
    faults = found("args = GRPOConfig(num_generations=8)", name, framework)
    assert ["a Python program is not read" in sentence for sentence in faults.sentences] == [True]


def test_a_launchers_option_is_taken_out_without_the_script_it_starts() -> None:
    for option in ("--config_file z.yaml", "--mixed_precision bf16"):
        for script in ("grpo.py", "-m trl.scripts.grpo"):
            sentence = f"r.sh, line 1: {option.split()[0]}: x."
            cut, _ = without_key(f"accelerate launch {option} {script} --a 1", "r.sh", sentence)
            assert cut.split() == ["accelerate", "launch", *script.split(), "--a", "1"]


def test_rows_are_not_judged_before_the_servers_gpus_are_known() -> None:
    text = f"{TRL}use_vllm: true\nvllm_mode: server\nno_such: 1\n"
    faults = found(text, gpus=8)
    assert len(faults.sentences) == 2
    assert any("--rollout-gpus" in sentence for sentence in faults.sentences)


@pytest.mark.parametrize("option", ["vllm_data_parallel_size", "vllm_tensor_parallel_size"])
def test_rows_are_not_judged_without_what_says_how_many_gpus_the_server_takes(option: str) -> None:
    text = (
        f"swift rollout --model organisation/model --{option} 0 &\n"
        "NPROC_PER_NODE=6 swift rlhf --rlhf_type grpo --model organisation/model --use_vllm true --vllm_mode server "
        "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --num_generations 8\n"
    )
    faults = found(text, "run.sh", "ms_swift", gpus=8)
    assert len(faults.sentences) == 1
    assert f"run.sh, line 1: {option}: expected a whole number" in faults.sentences[0]


def test_a_fault_that_cannot_be_taken_out_is_told_once() -> None:
    faults = found('{"num_generations": 8, "no_such_key": 1, "other_key": 2}', "grpo.json")
    assert [sentence.count("has no key") for sentence in faults.sentences] == [1, 1]
    assert faults.lacking == ""
