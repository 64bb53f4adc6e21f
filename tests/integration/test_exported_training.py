"""The exported command in the training environment alone: a failure here means it trains something else, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.domain import Configuration, RewardSpec, Study
from autotune.recommendation import export
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import StudyReading
from autotune.verify.compare_run import read_step
from tests.support import factories as f
from tests.support.trl_keys import handling_of
from tests.support.trl_trials import ONE_THREAD, ROOT, training_python, write_spec
from trainer.frameworks import trl
from trainer.frameworks.common.exported import RUN
from trainer.frameworks.common.trainer_keys import KeyHandling

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.timeout(1200)]

KNOBS = Configuration(
    {
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 4,
        "num_generations": 4,
        "steps_per_generation": 2,
        "gradient_checkpointing": False,
        "precision": "bf16",
        "master_weights": "fp32",
        "attn_implementation": "eager",
        "optimizer": "adamw_torch",
        "rollout_engine": "transformers",
    }
)
REWARD = """\
import json, os, sys
from trainer import BONUS

HERE = os.path.dirname(os.path.abspath(__file__))


def score(prompts, completions, **columns):
    chunk = sys.modules["trl.kernels.chunked_logprob"].TOKEN_CHUNK_SIZE
    with open(os.path.join(HERE, "calls.jsonl"), "a") as stream:
        stream.write(json.dumps({"rows": len(completions), "groups": len(set(prompts)), "chunk": chunk}) + "\\n")
    return [BONUS + len(c) % 3 for c in completions]
"""
OWN = """\
# a LoRA run of our own
model_name_or_path: model        # beside this file
dataset_name: data
reward_funcs: [mine.score]
max_completion_length: 16
use_peft: true
lora_r: 4
lora_target_modules: [q_proj, v_proj]
beta: 0.04
temperature: 0.9
learning_rate: 1e-5
chat_template_kwargs: {enable_thinking: false}
lr_scheduler_type: constant
use_cpu: true
logging_steps: 1
report_to: none
save_strategy: "no"
per_device_train_batch_size: 8   # too much
"""


@dataclass(frozen=True)
class Case:
    """An export and the trial it is of."""

    folder: Path
    """The exported one."""
    user: Path
    """The user's, with ``calls.jsonl`` of the reward."""
    trial: Path
    exported: Exported


def make(
    tiny: Path,
    root: Path,
    configuration: Configuration,
    own: str,
    passthrough: dict[str, Any],
    reward_text: str = REWARD,
    ranks: int = 1,
) -> Case:
    """A study's configuration, exported, and the same as a trial."""
    user = root / "user"
    (user / "data").mkdir(parents=True)
    (user / "model").symlink_to(tiny / "model")
    (user / "data" / "train.jsonl").write_text((tiny / "prompts.jsonl").read_text())
    (user / "mine.py").write_text(reward_text)
    (user / "trainer.py").write_text("BONUS = 0.5\n")
    reward = (
        RewardSpec("import", "mine.score", path=str(user))
        if own
        else RewardSpec("file", "score", str(user / "mine.py"))
    )
    prompts = root / "kept.jsonl"
    prompts.write_text((tiny / "prompts.jsonl").read_text())
    workload = f.workload(
        model=str(user / "model"), prompts=str(prompts), rewards=(reward,), rows_per_update=8,
        max_prompt_length=48, max_completion_length=16, passthrough=passthrough,
    )  # fmt: skip
    spec = f.study_spec(
        workload=workload,
        baseline=configuration,
        resources=f.resources(cpu_ranks=ranks),
        python=training_python(),
        memory_limit=None,
        user_config=own,
        user_folder=str(user) if own else "",
        user_prompts=bool(own),
    )
    study = f.study(spec=spec)
    exported = build(study, configuration)
    folder = root / "exported"
    export.write(exported, study, folder)
    trial = trl.render(
        trial="1/0", configuration=configuration, model=workload.model, prompts=workload.prompts,
        rewards=workload.rewards, rows_per_update=8, max_prompt_length=48, max_completion_length=16,
        protocol=f.protocol(), passthrough=passthrough, seed=spec.seed, world_size=ranks,
    )  # fmt: skip
    return Case(folder, user, write_spec(root / "trial", trial).root, exported)


def build(study: Study, configuration: Configuration) -> Exported:
    class Notes:
        def notes(self, *_: Any) -> tuple[()]:
            return ()

    trials = (f.finished(0, configuration=configuration),)
    return export.build(StudyReading(study, trials), export.ExportChoice(trial=0), Notes())  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def written(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """From no configuration of the user's, with a seam."""
    knobs = Configuration({**KNOBS, "logprob_token_chunk": 64, "temperature": 0.8})
    return make(tiny, tmp_path_factory.mktemp("written"), knobs, "", {"top_p": 0.9})


@pytest.fixture(scope="module")
def edited(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """From the user's own file, by settings of TRL's alone."""
    values = yaml.safe_load(OWN)
    inputs = ("model_name_or_path", "dataset_name", "reward_funcs", "max_completion_length")
    passthrough = {k: v for k, v in values.items() if k not in inputs and handling_of(k) is not KeyHandling.KNOB}
    passthrough["learning_rate"] = float(passthrough["learning_rate"])
    knobs = Configuration({**KNOBS, "temperature": values["temperature"]})
    return make(tiny, tmp_path_factory.mktemp("edited"), knobs, OWN, passthrough)


def train(case: Case, tmp_path: Path, updates: int = 2) -> list[dict[str, Any]]:
    """Run the script as a user does, from a folder of hostile modules; returns the reward's calls."""
    for name in ("autotune", "search_spaces", "api"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the working directory was imported')\n")
    own = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AUTOTUNE"))}
    environment = {**own, **ONE_THREAD}
    run = subprocess.run(
        ["sh", str(case.folder / RUN), "--max_steps", str(updates), "--output_dir", str(tmp_path / "output")],
        cwd=tmp_path, env={**environment, "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
        capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    steps = [step for line in run.stdout.splitlines() if (step := read_step(line, 0.0)) is not None]
    assert len(steps) == updates
    assert all(step.mean_length and step.longest and step.mean_length <= step.longest <= 16 for step in steps)
    assert (tmp_path / "output").is_dir()
    return [json.loads(line) for line in (case.user / "calls.jsonl").read_text().splitlines()]


def resolved(case: Case, tmp_path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What TRL builds for the trial and for the export."""
    environment = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **ONE_THREAD}
    config = case.folder / "grpo.yaml"
    folder = case.exported.export.command.folder.replace("{here}", str(case.folder))
    run = subprocess.run(
        [training_python(), str(ROOT / "tests" / "support" / "resolved_training.py"), str(case.trial), str(config)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    return found["trial"], found["script"]


WITNESS = """\
import json, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))


def trainer():
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "_calculate_rewards"):
        frame = frame.f_back
    return frame.f_locals["self"]


def score(prompts, completions, **columns):
    it = trainer()
    told = {"rows": len(completions), "processes": it.accelerator.num_processes}
    if it.use_vllm:
        engine = it.vllm_generation.llm.llm_engine.vllm_config
        told["sequences"] = engine.scheduler_config.max_num_seqs
        told["cache"] = engine.cache_config.kv_cache_memory_bytes
        told["longest"] = engine.model_config.max_model_len
        told["synced"] = it.vllm_generation.sync_weights.__name__
    if it.is_deepspeed_enabled:
        told["stage"] = it.model_wrapped.zero_optimization_stage()
    with open(os.path.join(HERE, "calls.jsonl"), "a") as stream:
        stream.write(json.dumps(told) + "\\n")
    return [float(len(c) % 3) for c in completions]
"""
"""A reward that also says what it is computed beside."""


def test_an_exported_engine_is_the_one_that_was_measured(tiny: Path, tmp_path: Path) -> None:
    """The printed command trains with vLLM on a CPU, with what only the launcher can tell the engine."""
    engine = {"rollout_engine": "vllm", "kv_cache_memory_bytes": 48 << 20, "max_num_seqs": 4, "enforce_eager": True}
    knobs = Configuration({**KNOBS, **engine, "precision": "fp32", "rollout_dtype": "fp32"})
    case = make(tiny, tmp_path / "case", knobs, "", {"learning_rate": 1e-3}, WITNESS)
    assert set(case.exported.export.seams) == {
        "kv_cache_memory_bytes",
        "max_num_seqs",
        "enforce_eager",
        "rollout_dtype",
    }
    calls = train(case, tmp_path)
    assert [call["rows"] for call in calls] == [4] * 4
    for call in calls:
        assert (call["sequences"], call["cache"], call["longest"]) == (4, 48 << 20, 64)
        assert call["synced"] == "sync_by_reload"


def test_an_exported_run_of_two_sharding_processes_trains(tiny: Path, tmp_path: Path) -> None:
    """The printed command starts both, with DeepSpeed's stage in each."""
    knobs = Configuration({**KNOBS, "gradient_accumulation_steps": 2, "zero_stage": 2})
    case = make(tiny, tmp_path / "case", knobs, "", {}, WITNESS, ranks=2)
    assert case.exported.export.parts
    calls = train(case, tmp_path)
    assert [(call["processes"], call["stage"]) for call in calls] == [(2, 2)] * 4  # 2 updates, a generation each
    assert not (case.folder / "accelerate.yaml").exists()


@pytest.mark.parametrize("name", ["written", "edited"])
def test_trial_and_script_build_the_same_trainer(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case: Case = request.getfixturevalue(name)
    trial, script = resolved(case, tmp_path)
    ours, theirs = trial.pop("arguments"), script.pop("arguments")
    assert trial == script
    assert set(ours) == set(theirs)
    differing = {key for key in ours if ours[key] != theirs[key]}
    allowed = {key for key in ours if handling_of(key) is KeyHandling.MEASURING} | {"model_init_kwargs"}
    assert differing - allowed == set(), {key: (ours[key], theirs[key]) for key in differing - allowed}
    assert (ours["per_device_train_batch_size"], ours["bf16"]) == ("2", "True")
    assert trial["attention"] == "eager"
    assert trial["batch"] == [1, 2, 4]
    if name == "edited":
        assert trial["frozen"] > trial["trained"] > 0
        assert trial["beta"] == 0.04


def test_the_written_command_trains_with_its_rows_and_its_seam(written: Case, tmp_path: Path) -> None:
    assert written.exported.export.seams == {"logprob_token_chunk": 64}
    calls = train(written, tmp_path)
    assert [(call["rows"], call["groups"]) for call in calls] == [(4, 1)] * 4  # 2 updates of 2 generations of 4 rows
    assert {call["chunk"] for call in calls} == {64}


def test_the_edited_command_trains_from_the_users_folder_with_trls_own_chunk(edited: Case, tmp_path: Path) -> None:
    assert edited.exported.export.seams == {}
    calls = train(edited, tmp_path)
    assert [(call["rows"], call["groups"]) for call in calls] == [(4, 1)] * 4
    assert {call["chunk"] for call in calls} == {4096}
    assert "# too much" in (edited.folder / "grpo.yaml").read_text()
