"""A user's own verl run, read: if one of these fails, a study's baseline is not what the user runs."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from trainer.frameworks.common.asked import KNOB
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.key_handling import KeyHandling
from trainer.frameworks.common.shell_syntax import ShellError
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_handling import handling_of
from trainer.frameworks.verl.key_tables import FIXED, KEYS, NATIVE
from trainer.frameworks.verl.reading import calls_of

SCRIPT = """\
#!/usr/bin/env bash
# GRPO on gsm8k
set -xeuo pipefail
here=$(cd "$(dirname "$0")" && pwd)
NGPUS=${NGPUS:-4}
MODEL_PATH=Qwen/Qwen2.5-0.5B-Instruct   # small
export HF_HUB_OFFLINE=1
DATA=(
    data.train_files="$here/data/train.parquet"
    data.val_files="['$here/data/test.parquet']"
    data.train_batch_size=64
    data.max_prompt_length=512 data.max_response_length=1024
)
if [ "$NGPUS" -gt 1 ]; then echo many; fi
VLLM_USE_V1=1 python3 -m verl.trainer.main_ppo --config-name=ppo_trainer \\
    algorithm.adv_estimator=grpo "${DATA[@]}" \\
    actor_rollout_ref.model.path=$MODEL_PATH \\
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \\
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=32 \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001 \\
    +actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8 \\
    trainer.n_gpus_per_node=$NGPUS trainer.total_epochs=15 trainer.logger='["console","wandb"]' \\
    reward.custom_reward_function.path=rew.py $@ 2>&1 | tee log.txt
"""


def overrides(*more: str) -> str:
    base = (
        "algorithm.adv_estimator=grpo", "trainer.n_gpus_per_node=2", "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    )  # fmt: skip
    return "\n".join((*base, *more))


def read(*more: str) -> Imported:
    return import_config(overrides(*more), "mine.txt")


def test_a_users_script() -> None:
    found = import_config(SCRIPT, "train.sh", folder="/home/me")
    assert found.knobs == {
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 16,  # 32 prompts x 8 completions over 4 GPUs of 4 rows
        "num_generations": 8,
        "steps_per_generation": 32,
        "logprob_rows": 16,
        "kv_cache_dtype": "fp8",
        "rollout_engine": "vllm",
        "expandable_segments": False,
        "host_allocator": "default",
    }
    assert (found.processes, found.model) == (4, "Qwen/Qwen2.5-0.5B-Instruct")
    assert dict(found.dataset) == {
        "data.train_files": "/home/me/data/train.parquet",
        "data.val_files": ["/home/me/data/test.parquet"],
    }
    assert found.rewards == ("rew.py:compute_score",)
    assert (found.max_prompt_length, found.max_completion_length) == (512, 1024)
    assert found.passthrough == {
        "actor_rollout_ref.actor.use_kl_loss": True,
        "actor_rollout_ref.actor.kl_loss_coef": 0.001,
        "trainer.total_epochs": 15,
        "trainer.logger": ["console", "wandb"],
        "env": {"HF_HUB_OFFLINE": "1", "VLLM_USE_V1": "1"},
    }
    assert found.lines["data.train_batch_size"] == 11
    assert found.lines["trainer.total_epochs"] == 25
    assert found.notes == (
        "train.sh, line 22: actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu: a trial gives the reference model "
        "what actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu says.",
    )


def test_a_list_of_overrides_and_a_configuration_say_the_same() -> None:
    lines = overrides(
        "actor_rollout_ref.actor.strategy=fsdp2",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:fp16}",
    )
    listed = "".join(f"- {line}\n" for line in lines.splitlines())
    nested = """\
algorithm: {adv_estimator: grpo}
trainer: {n_gpus_per_node: 2}
data: {train_batch_size: 16}
actor_rollout_ref:
  actor:
    ppo_mini_batch_size: 8
    ppo_micro_batch_size_per_gpu: 2
    strategy: fsdp2
    fsdp_config:
      mixed_precision: {param_dtype: fp16}
  rollout: {n: 4}
  ref:
    log_prob_use_dynamic_bsz: ${oc.select:actor_rollout_ref.actor.use_dynamic_bsz,false}
"""
    found = [import_config(text, "x").knobs for text in (lines, listed, nested)]
    assert found[0] == found[1] == found[2]
    assert found[0]["precision"] == "fp16"
    assert found[0]["fsdp"] == "fsdp2"
    assert "dynamic_batching" not in found[0]


def test_with_dynamic_batching_rows_need_not_be_said() -> None:
    text = overrides("actor_rollout_ref.actor.use_dynamic_bsz=True").replace(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", ""
    )
    found = import_config(text, "x").knobs
    assert (found["micro_batch_size"], found["gradient_accumulation_steps"], found["steps_per_generation"]) == (
        16,
        1,
        2,
    )


def test_ranks_that_share_a_sequence_have_rows_together() -> None:
    for key in ("actor_rollout_ref.actor.", "actor_rollout_ref.actor.fsdp_config."):
        found = read(f"{key}ulysses_sequence_parallel_size=2").knobs
        assert found["sequence_parallel_size"] == 2
        assert found["gradient_accumulation_steps"] == 16


@pytest.mark.parametrize(("line", "knob", "value"), of("each_word_of_verls"))
def test_each_word_of_verls(line: str, knob: str, value: Any) -> None:
    assert read(line).knobs.get(knob) == value


@pytest.mark.parametrize(("line", "words"), of("what_a_trial_cannot_honour_is_refused_by_its_line"))
def test_what_a_trial_cannot_honour_is_refused_by_its_line(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(line)
    said = str(refused.value)
    assert said.startswith("mine.txt, line ")
    assert int(said.split("line ")[1].split(":", maxsplit=1)[0]) in range(1, 9)
    assert words in said
    assert said.endswith(".")
    assert "\n" not in said


@pytest.mark.parametrize(("shared", "each"), [(1, 8), (2, 16)])
def test_rows_over_all_gpus_are_told_by_the_number_to_write(shared: int, each: int) -> None:
    sharing = "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size"
    with pytest.raises(ConfigError, match=f"ppo_micro_batch_size_per_gpu {each}, of 64 over {8 // shared} ranks"):
        read("actor_rollout_ref.actor.ppo_micro_batch_size=64", f"{sharing}={shared}", "trainer.n_gpus_per_node=8")


def test_gae_is_verls_default_and_not_ours() -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm\.adv_estimator: verl trains with GAE where nothing says otherwise"
    ):
        import_config("trainer.n_gpus_per_node=1", "x.txt")


def test_a_secret_in_the_environment_is_refused() -> None:
    with pytest.raises(ConfigError, match="WANDB_API_KEY: a secret would be stored"):
        import_config("export WANDB_API_KEY=x\npython -m verl.trainer.main_ppo algorithm.adv_estimator=grpo", "t.sh")


def test_other_files_of_verls_are_refused() -> None:
    with pytest.raises(ConfigError, match="line 1: --config-name ppo_veomni_trainer: VeOmni is not supported"):
        import_config("python -m verl.trainer.main_ppo --config-name ppo_veomni_trainer a=1", "t.sh")
    with pytest.raises(ConfigError, match="line 1: --config-name async_megatron: a trial starts from verl's own"):
        import_config("python -m verl.trainer.main_ppo --config-name async_megatron a=1", "t.sh")
    with pytest.raises(ConfigError, match="line 1: -m: an option of Hydra's"):
        import_config("python -m verl.trainer.main_ppo -m a=1,2", "t.sh")


def test_what_only_a_shell_knows_is_refused_by_its_line() -> None:
    script = "A=$(date)\npython -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\\n algorithm.kl_ctrl.kl_coef=$A"
    words = r"t.sh, line 3: algorithm.kl_ctrl.kl_coef: \$\(date\) is known to a shell only; write its value out"
    with pytest.raises(ConfigError, match=words):
        import_config(script, "t.sh")


def test_options_of_the_optimizer_may_be_said_one_by_one() -> None:
    assert read("+actor_rollout_ref.actor.optim.override_optimizer_config.fused=true").knobs["optimizer"] == (
        "adamw_torch_fused"
    )


SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"


def test_what_hydra_works_out_where_it_runs_is_asked_for() -> None:
    """Left out, it would be verl's own value in silence."""
    said = f"line 7: {SHARE}: ${{oc.env:SHARE,0.7}} is known to a shell only; give --set gpu_memory_utilization=..., or"
    for text in (overrides(f"{SHARE}='${{oc.env:SHARE,0.7}}'"), overrides(f"{SHARE}=${{oc.env:SHARE,0.7}}")):
        assert said in import_config(text, "x").asked[f"{KNOB}gpu_memory_utilization"]
    own = "algorithm.adv_estimator: grpo\nactor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 1\n"
    found = import_config(f"{own}actor_rollout_ref.model.path: ${{oc.env:ROOT}}/m\n", "x.yaml")
    assert (found.model, list(found.asked)) == (None, ["model"])
    kept = read("data.cache='${oc.env:HOME}/x'", "trainer.default_local_dir='${oc.env:HOME}/y'")
    assert kept.passthrough["data.cache"] == "${oc.env:HOME}/x", "a trial's verl works it out"


def test_a_value_that_follows_another_key_is_that_keys() -> None:
    tokens = "actor_rollout_ref.rollout.max_num_batched_tokens"
    follows = (f"{tokens}='${{data.max_prompt_length}}'", "data.max_prompt_length=300")
    assert read(*follows).knobs["max_num_batched_tokens"] == 300
    chain = (f"{tokens}='${{my.tokens}}'", "+my.tokens='${your.tokens}'", "+your.tokens=400")
    assert read(*chain).knobs["max_num_batched_tokens"] == 400
    for own in (f"{SHARE}='${{{SHARE}}}'", f"{SHARE}='${{not.said}}'", f"{SHARE}='${{a.b}}' +a.b='${{{SHARE}}}'"):
        assert "gpu_memory_utilization" not in read(*own.split()).knobs


def test_of_several_calls_the_last_is_read_and_says_so() -> None:
    run = "python -m verl.trainer.main_ppo " + overrides().replace("\n", " ")
    found = import_config(f"{run} {SHARE}=0.5\n{run} {SHARE}=0.6\n", "run.sh")
    assert found.knobs["gpu_memory_utilization"] == 0.6
    assert "run.sh, line 1: it starts main_ppo 2 times and says different things; the last is read." in found.notes
    same = import_config(f"if [ $A ]; then\n{run}\nelse\n{run}\nfi\n", "run.sh")
    assert not any("times" in note for note in same.notes)


def test_every_key_has_one_fate() -> None:
    assert all(handling_of(key) is KeyHandling.KNOB for key in KEYS)
    assert not KEYS & set(FIXED)
    assert len(set(NATIVE.values())) == len(NATIVE)


@pytest.mark.parametrize(("script", "words"), of("words_of_a_command"))
def test_words_of_a_command(script: str, words: list[str]) -> None:
    (call,) = calls_of(script, "main_ppo")
    assert [word.text for word in call.words] == words


def test_what_only_a_shell_knows_is_marked() -> None:
    (call,) = calls_of("A=$(date); B=`pwd`\nmain_ppo a=$A b=$B c=$C d=${D:-$USER/x} e=${E%.txt}", "main_ppo")
    assert [word.unknown for word in call.words] == ["", "$(date)", "`pwd`", "$C", "$USER", "${E%.txt}"]


@examples(100, 300)
@given(text=st.text(alphabet="ab =\n\\'\"$(){}[]@#;|&<>`", max_size=40))
def test_any_script_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ShellError):
        for call in calls_of(f"{text}\nmain_ppo x=1", "main_ppo"):
            assert any("main_ppo" in word.text for word in call.words)


@examples(100, 300)
@given(text=st.text(max_size=60) | st.text(alphabet="abc.=+-{}[]:, \n'\"#$", max_size=60))
def test_any_file_is_refused_in_one_sentence_unless_it_says_grpo(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_config(text, "mine")
    assert str(refused.value).startswith("mine")
    assert "\n" not in str(refused.value)


def test_entropy_is_checkpointed_for_nothing_without_a_coefficient() -> None:
    actor = "actor_rollout_ref.actor."
    base = f"algorithm.adv_estimator=grpo\n{actor}ppo_micro_batch_size_per_gpu=1\n{actor}entropy_checkpointing=true\n"
    said = [
        [note for note in import_config(base + more, "mine").notes if "entropy_checkpointing" in note]
        for more in ("", f"{actor}entropy_coeff=0\n", f"{actor}entropy_coeff=0.01\n")
    ]
    assert [len(notes) for notes in said] == [1, 1, 0]
    assert "line 3" in said[0][0]


ASYNC = (
    "trainer.v1.trainer_mode=separate_async", "trainer.v1.separate_async.parameter_sync_step=4",
    "data.train_batch_size=32",
    "actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=6",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl", "trainer.v1.sampler.max_off_policy_threshold=null",
)  # fmt: skip


def test_verls_asynchronous_modes_are_read() -> None:
    apart = read(*ASYNC).knobs
    assert apart["steps_per_generation"] == 4 * int(apart["gradient_accumulation_steps"])
    expected = {
        "rollout_mode": "server", "async_generation": True, "rollout_gpus": 6, "weight_sync_every": 4,
        "weight_sync_backend": "nccl", "staleness_limit": "unlimited",
    }  # fmt: skip
    assert {name: apart[name] for name in expected} == expected
    beside = read("trainer.v1.trainer_mode=colocate_async", "trainer.v1.sampler.max_off_policy_strategy=wait").knobs
    assert (beside["rollout_mode"], beside["async_generation"]) == ("colocate", True)
    assert beside["stale_completions"] == "wait"
    assert "rollout_gpus" not in beside
    assert read("trainer.v1.trainer_mode=sync").knobs["async_generation"] is False


@pytest.mark.parametrize("key", ["nnodes", "n_gpus_per_node"])
def test_gpus_that_generate_only_are_counted_or_asked_for(key: str) -> None:
    for value in ("0", "true", "-1"):
        with pytest.raises(
            ConfigError, match=f"mine.txt, line [0-9]+: actor_rollout_ref.rollout.{key}: expected a whole"
        ):
            read(*(word for word in ASYNC if f".{key}=" not in word), f"actor_rollout_ref.rollout.{key}={value}")


@pytest.mark.parametrize(("value", "said"), [("true", 1), ("false", 0)])
def test_a_controller_that_moves_gpus_is_told_of(value: str, said: int) -> None:
    key = "trainer.v1.separate_async.hybrid_rollout.enable_switch"
    found = read(f"{key}={value}")
    assert found.passthrough[key] is (value == "true")
    assert (
        sum("no trial runs so, and a plan and an export have the split that is set" in n for n in found.notes) == said
    )
