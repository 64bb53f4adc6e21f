"""The exported files: if one of these fails, what a user trains with is not what was measured."""

from __future__ import annotations

import ast
import asyncio
import difflib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from autotune.recommendation.export import command_of
from tests.support.imports import text_of
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.exported import RUN, Export, ExportRequest
from trainer.frameworks.trl import export

KNOBS: dict[str, Any] = {
    "micro_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "steps_per_generation": 2,
    "gradient_checkpointing": False,
    "precision": "bf16",
    "master_weights": "fp32",
    "attn_implementation": "sdpa",
    "optimizer": "adamw_torch_fused",
    "rollout_engine": "transformers",
}
OWN = text_of("trl_lora.yaml")


def wanted(**changes: Any) -> ExportRequest:
    base: dict[str, Any] = {
        "title": "first: 226.0k tokens/hour",
        "configuration": KNOBS,
        "python": "/training/bin/python",
        "model": "/models/small",
        "rewards": (RewardSpec("reasoning_gym", "chain_sum", options={"min_terms": 2}),),
        "rows_per_update": 8,
        "max_completion_length": 16,
    }
    return ExportRequest(**{**base, **changes})


def own(**changes: Any) -> ExportRequest:
    imported = (RewardSpec("import", "rewards.score", path="/home/me/run"),)
    changed = {"model": "/home/me/run/models/small", "rewards": imported, "user_config": OWN, "own_data": True}
    return wanted(**{**changed, **changes})


def config_of(made: Export) -> dict[str, Any]:
    found = yaml.safe_load(made.files["grpo.yaml"])
    assert isinstance(found, dict)
    return found


def test_a_written_configuration_states_every_knob_the_workload_and_the_data() -> None:
    made = export(wanted(passthrough={"learning_rate": 1e-6, "env": {"OMP_WAIT_POLICY": "PASSIVE"}}, seed=7))
    found = config_of(made)
    assert found["per_device_train_batch_size"] == 4
    assert found["gradient_accumulation_steps"] == 2
    assert (found["bf16"], found["fp16"], found["dtype"], found["use_vllm"]) == (True, False, "float32", False)
    assert found["optim"] == "adamw_torch_fused"
    assert {"torch_compile", "tf32", "pad_to_multiple_of", "dataloader_num_workers"} <= set(found)
    assert found["learning_rate"] == 1e-6
    assert found["env"] == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert (found["seed"], found["use_cpu"], found["max_completion_length"]) == (7, True, 16)
    assert (found["dataset_name"], found["reward_funcs"]) == ("prompts", ["autotune_reward.chain_sum"])
    assert made.prompts
    assert made.diff == ""


def test_the_users_own_file_differs_in_knob_keys_only() -> None:
    made = export(own())
    lines = list(difflib.ndiff(OWN.splitlines(), made.files["grpo.yaml"].splitlines()))
    removed = {line[2:].split(":")[0] for line in lines if line.startswith("-")}
    added = {line[2:].split(":")[0] for line in lines if line.startswith("+")}
    assert removed == {"per_device_train_batch_size", "gradient_accumulation_steps", "optim"}
    assert added == removed | {
        "num_generations", "steps_per_generation", "gradient_checkpointing", "bf16", "fp16", "dtype",
        "attn_implementation", "use_vllm",
    }  # fmt: skip
    assert "# for memory" in made.files["grpo.yaml"]
    assert {"-optim: adamw_torch", "+optim: adamw_torch_fused"} <= set(made.diff.splitlines())
    assert not made.prompts
    assert made.command.folder == "/home/me/run"
    assert config_of(made)["reward_funcs"] == ["rewards.score"]


def test_what_the_command_line_gave_replaces_what_the_file_named() -> None:
    text = OWN + "dataset_config: main\ndatasets:\n- path: other\n"
    made = export(
        own(user_config=text, own_data=False, model="/elsewhere/large", max_completion_length=32,
            rewards=(RewardSpec("file", "score", path="/home/me/score.py"),))
    )  # fmt: skip
    found = config_of(made)
    assert found["model_name_or_path"] == "/elsewhere/large"
    assert (found["dataset_name"], found["dataset_config"], found["datasets"]) == ("prompts", None, [])
    assert found["reward_funcs"] == ["autotune_reward.score"]
    assert found["max_completion_length"] == 32
    assert found["beta"] == 0.04
    assert made.prompts
    assert "{here}/prompts" in made.command.argv
    assert made.command.environment["PYTHONPATH"] == "{here}"


def test_keys_that_say_the_same_in_another_way_do_not_contradict_the_knobs() -> None:
    text = OWN + "generation_batch_size: 4\nmodel_init_kwargs: {dtype: bfloat16}\ntorch_compile_mode: default\n"
    made = export(own(user_config=text, configuration={**KNOBS, "torch_compile": False}))
    found = config_of(made)
    assert found["generation_batch_size"] == 8  # 4 rows in each of 2 micro-batches
    assert "steps_per_generation" not in found  # TRL refuses both
    assert found["model_init_kwargs"] == {"dtype": "float32"}  # it would win over dtype
    assert "dtype" not in found
    assert found["torch_compile_mode"] is None  # it would turn compiling on


VLLM: dict[str, Any] = {**KNOBS, "rollout_engine": "vllm", "gpu_memory_utilization": 0.4, "max_model_len": 64}
ENGINE: dict[str, Any] = {"max_num_seqs": 16, "enforce_eager": True, "rollout_quantization": "none"}
LAUNCHER = text_of("trl_launch.txt")


def test_the_launcher_sets_all_a_trial_sets_and_in_a_trials_order() -> None:
    everything = {**VLLM, **ENGINE, "zero_stage": 2, "precision": "fp8", "fp8_emulate": True, "logprob_rows": 2}
    made = export(wanted(configuration=everything))
    assert made.files["launch.py"] == LAUNCHER
    compile(made.files["launch.py"], "launch.py", "exec")
    copied = {name for name in made.files if name.startswith("autotune_") and name != "autotune_reward.py"}
    assert copied == {f"autotune_{part}.py" for part in ("cpu_deepspeed", "engine", "float8", "seams")}
    child = Path(__file__).parents[3] / "trainer" / "child" / "frameworks"
    for name in copied:
        folder = child / ("hf_trainer" if name == "autotune_float8.py" else "trl")
        assert made.files[name] == (folder / name.removeprefix("autotune_")).read_text(), name
    compiled = export(wanted(configuration={**VLLM, "enforce_eager": False}))
    assert "before_import('cpu', compiles=True)" in compiled.files["launch.py"]


def test_vllm_on_a_cpu_always_needs_the_launcher_and_says_so() -> None:
    """Left out, the first weight sync fails: TRL's own cannot load into the CPU engine's packed weights."""
    made = export(wanted(configuration=VLLM))
    assert "{here}/launch.py" in made.command.argv
    assert made.seams == {}
    (why,) = made.parts
    assert "weights" in why
    found = config_of(made)
    assert (found["use_vllm"], found["vllm_mode"], found["vllm_gpu_memory_utilization"]) == (True, "colocate", 0.4)
    assert (found["vllm_max_model_length"], found["vllm_enable_sleep_mode"]) == (64, False)
    on_gpu = export(wanted(configuration=VLLM, device="cuda"))
    assert on_gpu.parts == ()
    assert "launch.py" not in on_gpu.files
    exported = export(wanted(configuration={**VLLM, **ENGINE}, device="cuda"))
    assert exported.seams == {"enforce_eager": True, "max_num_seqs": 16}
    assert "autotune_engine.install_engine(ENGINE, 'cuda')" in exported.files["launch.py"]


def test_the_exported_engine_prepares_for_what_the_trial_prepared_for() -> None:
    unset = {knob: value for knob, value in VLLM.items() if knob != "max_model_len"}
    made = export(wanted(configuration=unset, max_prompt_length=20))
    assert config_of(made)["vllm_max_model_length"] == 36


def test_knobs_of_the_environment_are_in_the_command_and_need_no_launcher() -> None:
    made = export(wanted(configuration={**KNOBS, "host_allocator": "keep"}))
    assert made.command.environment["GLIBC_TUNABLES"].startswith("glibc.malloc.")
    assert "hugetlb" not in made.command.environment["GLIBC_TUNABLES"]
    assert (made.seams, made.parts) == ({}, ())
    assert "GLIBC_TUNABLES" in made.files[RUN]
    segments = export(wanted(configuration={**KNOBS, "expandable_segments": True}, device="cuda"))
    assert segments.command.environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    plain = export(wanted(configuration={**KNOBS, "host_allocator": "default", "expandable_segments": False}))
    assert plain.files == export(wanted()).files


def test_what_rests_is_in_no_file() -> None:
    resting = {**KNOBS, **ENGINE, "gpu_memory_utilization": 0.9, "zero_overlap": False, "fp8_emulate": True}
    assert export(wanted(configuration=resting)).files == export(wanted()).files


def test_deepspeed_is_launched_as_a_trial_is_with_every_value_written() -> None:
    zero = {**KNOBS, "zero_stage": 3, "offload_optimizer": "cpu", "zero_reduce_bucket": 1_000_000}
    own = {"deepspeed": {"steps_per_print": 7, "zero_optimization": {"sub_group_size": 5}}}
    made = export(
        wanted(configuration=zero, device="cuda", world_size=2, threads=6, passthrough=own, rows_per_update=16)
    )
    words = list(made.command.argv)
    assert words[1:3] == ["-m", "torch.distributed.run"]
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert words[words.index("trl.scripts.grpo") - 1] == "-m"
    assert made.command.environment["OMP_NUM_THREADS"] == "6"
    assert "accelerate.yaml" not in made.files
    assert made.parts == ()
    sharding = json.loads(made.files["deepspeed.json"])
    stage = sharding["zero_optimization"]
    assert (stage["stage"], stage["offload_optimizer"]["device"], stage["reduce_bucket_size"]) == (3, "cpu", 1_000_000)
    assert (sharding["steps_per_print"], stage["sub_group_size"]) == (7, 5)
    assert {"overlap_comm", "allgather_bucket_size", "stage3_prefetch_bucket_size"} <= set(stage)
    assert config_of(made)["deepspeed"] == "deepspeed.json"
    assert config_of(made)["ds3_gather_for_generation"] is True
    on_cpu = export(wanted(configuration=zero, world_size=2))
    assert config_of(on_cpu)["use_cpu"] is False  # true turns DeepSpeed off
    assert "accelerate knows no DeepSpeed on a CPU" in on_cpu.parts[0]
    assert on_cpu.command.environment["GLOO_SOCKET_IFNAME"] == "lo"


def test_several_processes_on_a_cpu_are_started_by_torchrun() -> None:
    """``accelerate launch`` would start one, and the exported run would be another than the trial."""
    made = export(wanted(world_size=2, threads=1))
    words = made.command.argv
    assert words[1:3] == ("-m", "torch.distributed.run")
    assert words[words.index("--nproc-per-node") + 1] == "2"
    assert config_of(made)["use_cpu"] is True
    several = export(wanted(world_size=2, device="cuda"))
    assert yaml.safe_load(several.files["accelerate.yaml"])["distributed_type"] == "MULTI_GPU"


def test_on_several_nodes_each_starts_its_own_processes() -> None:
    """What differs between them torchrun takes from its own variables (torch/distributed/argparse_util.py: PET_)."""
    made = export(wanted(device="cuda", world_size=8, nodes=2))
    words = list(made.command.argv)
    options = words[words.index("torch.distributed.run") + 1 :]
    assert options[:4] == ["--nnodes", "2", "--nproc-per-node", "4"]
    assert "--standalone" not in words
    assert "accelerate.yaml" not in made.files
    for name in ("PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"):
        assert name in made.files["run.sh"]
        assert name not in export(wanted(device="cuda", world_size=8)).files["run.sh"]


def test_the_users_own_mappings_keep_what_is_no_knob() -> None:
    text = OWN + (
        "deepspeed: ds/zero3.json   # ours\n"
        "gradient_checkpointing_kwargs:\n  determinism_check: none  # slow\n  use_reentrant: true\n"
        "model_init_kwargs: {use_cache: false}\n"
    )
    zero = {**KNOBS, "zero_stage": 2, "gradient_checkpointing": True, "checkpointing_reentrant": False}
    passthrough = {"model_init_kwargs": {"use_cache": False}, "deepspeed": {"steps_per_print": 7}}
    made = export(
        own(user_config=text, configuration={**zero, "hub_kernels": True}, device="cuda", passthrough=passthrough)
    )
    found = config_of(made)
    assert found["gradient_checkpointing_kwargs"] == {"determinism_check": "none", "use_reentrant": False}
    assert "# slow" in made.files["grpo.yaml"]
    assert found["model_init_kwargs"] == {"use_cache": False, "use_kernels": True}
    assert found["deepspeed"] == "deepspeed.json"
    assert json.loads(made.files["deepspeed.json"])["steps_per_print"] == 7
    words = made.command.argv
    assert words[words.index("--deepspeed") + 1] == "{here}/deepspeed.json"  # the command runs in the user's folder
    without = export(own(user_config=text, configuration={**KNOBS, "zero_stage": 0}, device="cuda"))
    assert config_of(without)["deepspeed"] is None
    assert "deepspeed.json" not in without.files
    assert "deepspeed" not in config_of(export(own(configuration={**KNOBS, "zero_stage": 0})))


def test_a_rollout_server_has_its_own_script_and_gpus() -> None:
    split = {**VLLM, **ENGINE, "rollout_mode": "server", "rollout_gpus": 1}
    made = export(wanted(configuration=split, device="cuda", world_size=3, rows_per_update=24))
    assert made.server
    assert (made.seams, made.parts) == ({}, ())
    script = made.files["server.sh"]
    assert "--max-num-seqs 16" in script
    assert "--host 127.0.0.1 --port 8000" in script
    assert made.command.environment["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    found = config_of(made)
    assert (found["vllm_mode"], found["vllm_server_base_url"]) == ("server", "http://127.0.0.1:8000")
    assert yaml.safe_load(made.files["accelerate.yaml"])["num_processes"] == 3
    assert not export(wanted(configuration=VLLM)).server


@pytest.mark.parametrize(
    ("visible", "training", "serving"),
    [(None, "0,1,2", "3"), ("4,5,6,7", "4,5,6", "7"), ("GPU-a,GPU-b,GPU-c,GPU-d", "GPU-a,GPU-b,GPU-c", "GPU-d")],
)
def test_both_scripts_share_out_the_gpus_the_caller_leaves_them(
    visible: str | None, training: str, serving: str, tmp_path: Path
) -> None:
    """Else a server would take a GPU the user had kept for something else, or one that trains."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"\n')
    python.chmod(0o755)
    split = {**VLLM, "rollout_mode": "server", "rollout_gpus": 1}
    made = export(wanted(configuration=split, device="cuda", world_size=3, rows_per_update=24, python=str(python)))
    environment = {"PATH": os.environ["PATH"], **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
    said = {}
    for name in ("run.sh", "server.sh"):
        (tmp_path / name).write_text(made.files[name])
        done = subprocess.run(["sh", name], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        said[name] = done.stdout.split()
    assert said == {"run.sh": [training, "PCI_BUS_ID"], "server.sh": [serving, "PCI_BUS_ID"]}


def test_seam_knobs_go_through_the_launcher_and_only_where_they_differ() -> None:
    same = export(wanted(configuration={**KNOBS, "logprob_rows": 4, "logprob_token_chunk": 4096}))
    assert same.seams == {}
    assert "launch.py" not in same.files
    assert "trl.scripts.grpo" in same.command.argv
    made = export(wanted(configuration={**KNOBS, "logprob_rows": 2, "logprob_token_chunk": 4096}))
    assert made.seams == {"logprob_rows": 2}
    assert "{here}/launch.py" in made.command.argv
    assert "trl.scripts.grpo" not in made.command.argv
    assert "SEAMS = {'logprob_rows': 2}" in made.files["launch.py"]
    assert "logprob_rows" not in config_of(made)


def test_every_exported_module_imports_nothing_of_ours() -> None:
    kinds = ("reasoning_gym", "file", "math_verify")
    rewards = tuple(RewardSpec(kind, "score", path="/home/me/score.py") for kind in kinds)
    everything = {**VLLM, "zero_stage": 2, "precision": "fp8", "fp8_emulate": True, "logprob_rows": 2}
    made = export(wanted(configuration=everything, rewards=rewards))
    sources = {name: text for name, text in made.files.items() if name.endswith(".py")}
    copied = {f"autotune_{part}.py" for part in ("cpu_deepspeed", "engine", "float8", "seams")}
    assert set(sources) == {"autotune_reward.py", "autotune_math_verifier.py", "launch.py", *copied}
    for name, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, name
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
            for module in modules:
                assert (module or "").split(".")[0] not in {"autotune", "trainer", "search_spaces", "api"}, name


def loaded(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = folder / "autotune_reward.py"
    path.write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("exported_reward", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_reward_is_the_users_own_function_with_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bonus_of_mine.py").write_text("BONUS = 0.5\n")
    file = tmp_path / "it's mine.py"
    file.write_text(
        "import start_of_mine\nfrom bonus_of_mine import BONUS\n"
        "def score(prompts, completions, **columns):\n    return [BONUS + len(c) for c in completions]\n"
        "class Judge:\n    async def __call__(self, completions, **columns):\n        return [2.0] * len(completions)\n"
        "judge = Judge()\n"
    )
    (stood := tmp_path / "project").mkdir()
    (stood / "rate.txt").write_text("0.25")
    (stood / "start_of_mine.py").write_text("")
    file.write_text(file.read_text() + "def rate(completions, **_):\n    return [float(open('rate.txt').read())]\n")
    names = ("score", "judge", "rate")
    rewards = tuple(RewardSpec("file", name, path=str(file), folder=str(stood)) for name in names)
    made = export(wanted(rewards=rewards))
    assert config_of(made)["reward_funcs"] == [f"autotune_reward.{name}" for name in names]
    module = loaded(made.files["autotune_reward.py"], tmp_path, monkeypatch)
    assert module.score(prompts=["p"], completions=["abc"]) == [3.5]
    assert module.judge.__name__ == "judge"  # TRL logs a reward by its name
    before = Path.cwd()
    assert module.rate(completions=["a"]) == [0.25], "a relative path is of the folder the reward was tried in"
    assert asyncio.run(module.judge(completions=["a"])) == [2.0]
    assert Path.cwd() == before


def test_a_task_reward_scores_what_the_task_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Task:
        def __init__(self, **options: Any) -> None:
            assert options == {"min_terms": 2}

        def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
            return float(answer == entry["answer"])

    gym = ModuleType("reasoning_gym")
    gym.create_dataset = lambda name, **options: Task(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reasoning_gym", gym)
    module = loaded(export(wanted()).files["autotune_reward.py"], tmp_path, monkeypatch)
    completions = ["<answer>7</answer>", "8", [{"role": "assistant", "content": "so <answer> 7 </answer>"}]]
    assert module.chain_sum(completions=completions, entry=['{"answer": "7"}'] * 3) == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("user_config", ["", OWN])
def test_the_script_survives_hostile_paths_and_passes_options_on(tmp_path: Path, user_config: str) -> None:
    folder = tmp_path / "an export; $(touch x) 'quoted' {here}"
    folder.mkdir()
    python = folder / "my python"
    python.write_text(
        f"#!{sys.executable}\nimport os, sys\nprint([os.getcwd(), os.environ.get('PYTHONPATH'), *sys.argv[1:]])\n"
    )
    python.chmod(0o755)
    reward = (RewardSpec("file", "score", path="/home/me/score.py"),)
    made = export(wanted(python=str(python), title="a\nrm -rf x", rewards=reward, user_config=user_config, threads=3))
    (folder / RUN).write_text(made.files[RUN])
    environment = {**os.environ, "PYTHONPATH": "/theirs"}
    command = ["sh", str(folder / RUN), "--max_steps", "2"]
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    cwd, path, *words = ast.literal_eval(printed)
    assert cwd == str(tmp_path if user_config else folder)
    assert path == (f"{folder}:/theirs" if user_config else "/theirs")
    assert words[:2] == ["-m", "accelerate.commands.launch"]
    assert words[words.index("--config_file") + 1] == str(folder / "accelerate.yaml")
    assert words[words.index("--num_cpu_threads_per_process") + 1] == "3"
    assert words[words.index("--config") + 1] == str(folder / "grpo.yaml")
    assert words[-2:] == ["--max_steps", "2"]
    assert not (tmp_path / "x").exists()
    assert list(command_of(made, folder)[0]) == [str(python), *words[:-2]]


VERIFIER = """\
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "hang" in asked["text"]:
        time.sleep(600)
    print(json.dumps({"score": None if asked["gold"] == "?" else float(asked["gold"] in asked["text"])}), flush=True)
"""


def test_a_completion_that_hangs_math_verify_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = export(wanted(rewards=(RewardSpec("math_verify", "math_verify"),)))
    assert config_of(made)["reward_funcs"] == ["autotune_reward.math_verify"]
    assert "import math_verify" in made.files["autotune_math_verifier.py"]
    (tmp_path / "autotune_math_verifier.py").write_text(VERIFIER)
    text = made.files["autotune_reward.py"]
    assert "self._line(5.0)" in text
    module = loaded(text.replace("self._line(5.0)", "self._line(0.5)"), tmp_path, monkeypatch)
    completions = ["it is 7", "hang", "8", [{"role": "assistant", "content": "7"}]]
    assert module.math_verify(completions=completions, answer=["7", "7", "7", "?"]) == [1.0, 0.0, 0.0, None]
