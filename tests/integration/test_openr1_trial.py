"""Real Open-R1 trials through a checkout's own ``grpo.py``: what they measure, refuse, and what their export does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.not_none import not_none
from tests.support.openr1_trials import KNOBS, TEMPLATE, build_tiny, environment, run_trial, tiny_spec
from tests.support.trl_trials import LENGTHS, PLAIN, ROOT, reward_file
from trainer.child.contract import CycleKind, FailureReason, Phase, Protocol, RewardSpec
from trainer.frameworks.common.exported import RUN, ExportRequest
from trainer.frameworks.open_r1 import export

pytestmark = [pytest.mark.full, pytest.mark.frameworks]

FORMAT = RewardSpec("open_r1", "format")
LIMITS = {"outside_cpu_limit": 9.0}


@pytest.fixture(scope="module")
def openr1() -> tuple[str, str]:
    return environment()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, openr1: tuple[str, str]) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"), openr1[0])


def test_a_trial_measures_whole_cycles_by_phase(tiny: Path, openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    own = reward_file(tiny / "reward", f"time.sleep(0.2); {PLAIN}")
    ran = run_trial(tiny / "whole", tiny_spec(tiny, (FORMAT, own), checkout), python)
    assert ran.result.ok, ran.result.detail
    assert ran.result.data["versions"]["trl"].startswith("0.18.")
    kinds = [cycle.cycle_kind for cycle in ran.cycles]
    assert kinds == [CycleKind.WARMUP, CycleKind.RECORDED, CycleKind.RECORDED, CycleKind.MAXIMUM]
    for cycle in ran.cycles:
        assert cycle.seconds == pytest.approx(sum(cycle.phases.values()), rel=1e-6)
        assert {Phase.GENERATE.value, Phase.REWARD.value, Phase.LOGPROB.value, Phase.UPDATE.value} <= set(cycle.phases)
        assert cycle.phases[Phase.REWARD.value] >= 0.2
        assert (cycle.rows, cycle.updates, cycle.groups) == (16, 1, 4)
        assert cycle.loss is not None
    for cycle in ran.of(CycleKind.RECORDED):
        assert sorted(cycle.lengths) == sorted(LENGTHS)
        assert cycle.completion_tokens == sum(LENGTHS)
    assert ran.of(CycleKind.MAXIMUM)[0].lengths == (16,) * 16
    worst = not_none(ran.worst_case)
    assert (worst.rows, worst.prompt_tokens, worst.completion_tokens) == (4, 48, 16)


def test_several_generations_serve_an_update(tiny: Path, openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    protocol = Protocol(warmup=1, natural=1, recorded=1, **LIMITS)
    spec = tiny_spec(tiny, (FORMAT,), checkout, protocol, knobs={"steps_per_generation": 2})
    ran = run_trial(tiny / "several", spec, python)
    assert ran.result.ok, ran.result.detail
    natural, recorded = ran.of(CycleKind.NATURAL)[0], ran.of(CycleKind.RECORDED)[0]
    assert natural.rows == recorded.rows == 16
    assert sorted(natural.lengths) == sorted(recorded.lengths)


def test_a_reward_that_the_registry_has_not_is_refused(tiny: Path, openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    ran = run_trial(tiny / "unknown", tiny_spec(tiny, (RewardSpec("open_r1", "acuracy"),), checkout), python)
    assert not ran.result.ok
    assert (ran.result.reason, ran.result.message) == (
        FailureReason.ILLEGAL,
        "Open-R1's registry has no reward acuracy",
    )


def test_groups_that_trl_refuses_are_the_users_to_mend(tiny: Path, openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    ran = run_trial(tiny / "groups", tiny_spec(tiny, (FORMAT,), checkout, knobs={"num_generations": 3}), python)
    assert ran.result.reason is FailureReason.ILLEGAL
    assert "evenly divisible by the number of generations" in ran.result.message


def test_a_failing_reward_is_told_from_the_framework(tiny: Path, openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    own = reward_file(tiny / "broken", "raise KeyError('column')")
    ran = run_trial(tiny / "broken" / "run", tiny_spec(tiny, (own,), checkout), python)
    assert ran.result.reason is FailureReason.REWARD_ERROR
    assert ran.result.phase is Phase.REWARD


def test_a_folder_that_is_no_checkout_is_refused(tiny: Path, openr1: tuple[str, str]) -> None:
    ran = run_trial(tiny / "nowhere", tiny_spec(tiny, (FORMAT,), str(tiny)), openr1[0])
    assert ran.result.reason is FailureReason.ILLEGAL
    assert "is no checkout of Open-R1" in ran.result.message


def test_a_registrys_reward_can_be_tried_before_a_study(openr1: tuple[str, str]) -> None:
    python, checkout = openr1
    code = (
        "import sys; from trainer.child.contract import RewardSpec; from trainer.child.rewards import load_reward\n"
        "reward = load_reward(RewardSpec('open_r1', 'format', folder=sys.argv[1]))\n"
        "print(reward.__name__, reward(completions=['<think>\\na\\n</think>\\n<answer>\\nb\\n</answer>', 'c']))\n"
    )
    found = subprocess.run([python, "-c", code, checkout], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.stdout.strip() == "format_reward [1.0, 0.0]", found.stderr[-2000:]


@pytest.mark.parametrize("own_reward", [False, True], ids=["registry", "own-reward"])
def test_an_exported_recipe_runs_unchanged(tiny: Path, openr1: tuple[str, str], own_reward: bool) -> None:
    python, checkout = openr1
    folder = tiny / f"export-{own_reward}"
    own = (reward_file(tiny / "exported", PLAIN),) if own_reward else ()
    passthrough: dict[str, Any] = {
        "chat_template": TEMPLATE,
        "max_steps": 2,
        "learning_rate": 1e-5,
        "save_strategy": "no",
    }
    made = export(
        ExportRequest(
            title="a tiny run",
            configuration=KNOBS,
            python=python,
            model=str(tiny / "model"),
            rewards=(FORMAT, *own),
            rows_per_update=16,
            max_prompt_length=48,
            max_completion_length=16,
            passthrough=passthrough,
            checkout=checkout,
            seed=3,
        )
    )
    (folder / "prompts").mkdir(parents=True)
    shutil.copy(tiny / "prompts.jsonl", folder / "prompts" / "train.jsonl")
    for name, text in made.files.items():
        (folder / name).write_text(text)
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    ended = subprocess.run(
        ["sh", str(folder / RUN)], env=offline, cwd=tiny, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
    state = json.loads((folder / "output" / "trainer_state.json").read_text())
    assert state["global_step"] == 2
    names = {"rewards/format_reward/mean"} | ({"rewards/reward/mean"} if own_reward else set())
    assert names <= set(state["log_history"][0])
    assert state["log_history"][0]["num_tokens"] > 16
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert recipe["per_device_train_batch_size"] == 4
