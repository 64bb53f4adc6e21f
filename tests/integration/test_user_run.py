"""A user's own run as real TRL trials: adapters, a reference model, a template, several rewards, their environment."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.running.preloaded import Preloads
from tests.support.trl_trials import Ran, build_tiny, run_trial, tiny_spec, training_python
from trainer.child.contract import TAG_VARIABLE, CycleKind, FailureReason, RewardSpec

pytestmark = [pytest.mark.slow, pytest.mark.trl]

BITSANDBYTES = "bitsandbytes==0.50.2"
TAG = "autotune:someone:1:0"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{{ closing }}"
PROMPT = "add 2 and 3"
RENDERED = f"[user] {PROMPT}\n=>"

REWARD = """
import gc, json, os, pathlib
import trainer  # the user's own, not the tool's

def score(prompts, completions, **columns):
    import peft, trl
    found = next(o for o in gc.get_objects() if isinstance(o, trl.GRPOTrainer))
    model = found.accelerator.unwrap_model(found.model)
    adapted = isinstance(model, peft.PeftModel)
    helpers = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"math_verifier.py" in (folder / "cmdline").read_bytes():
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                helpers += [(folder / "environ").read_bytes().decode()] if parent == os.getpid() else []
        except OSError:
            pass
    pathlib.Path(__file__).with_name("seen.json").write_text(json.dumps({
        "trainer": trainer.__file__,
        "rank": model.peft_config["default"].r if adapted else None,
        "four_bit": any("4bit" in type(p).__name__ or "Params4bit" in type(p).__name__ for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "all": sum(p.numel() for p in model.parameters()),
        "beta": found.beta,
        "weights": found.reward_weights.tolist(),
        "names": found.reward_func_names,
        "pushes": found.args.push_to_hub,
        "switch": os.environ.get("MY_SWITCH"),
        "prompt": prompts[0],
        "helpers": helpers,
    }))
    return [trainer.BONUS] * len(completions)
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a chat template of the user's own, and one prompt as messages."""
    folder = build_tiny(tmp_path_factory.mktemp("tiny"))
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
    row = {"prompt": [{"role": "user", "content": PROMPT}], "answer": "5"}
    (folder / "prompts.jsonl").write_text((json.dumps(row) + "\n") * 8)
    return folder


def own_files(folder: Path) -> tuple[RewardSpec, ...]:
    """A reward beside a ``trainer.py``, one named by its dotted path, one of TRL's, and math-verify."""
    folder.mkdir()
    (folder / "trainer.py").write_text("BONUS = 0.5\n")
    (folder / "my_reward.py").write_text(REWARD)
    (folder / "my_package").mkdir()
    (folder / "my_package" / "rewards.py").write_text(
        "async def two(completions, **columns):\n    return [2.0 for _ in completions]\n"
    )
    return (
        RewardSpec("file", "score", str(folder / "my_reward.py")),
        RewardSpec("import", "my_package.rewards.two", str(folder)),
        RewardSpec("trl", "get_soft_overlong_punishment"),
        RewardSpec("math_verify", "math-verify"),
    )


@pytest.fixture(scope="module")
def adapted(tiny: Path) -> tuple[Ran, dict[str, Any]]:
    """LoRA with a reference model, as a TRL config would ask for it."""
    rewards = own_files(tiny / "own")
    spec = tiny_spec(
        tiny,
        rewards,
        knobs={"gradient_checkpointing": True},
        passthrough={
            "use_peft": True,
            "lora_r": 8,
            "lora_target_modules": ["q_proj", "v_proj"],
            "beta": 0.05,
            "reward_weights": [1.0, 0.5, 1.0, 0.0],
            "chat_template_kwargs": {"closing": "=>"},
            "push_to_hub": True,
            "env": {"MY_SWITCH": 7},
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TAG_VARIABLE, TAG)
        ran = run_trial(tiny / "lora", spec)
    assert ran.result.ok, (ran.result.message, ran.result.detail)
    return ran, json.loads((tiny / "own" / "seen.json").read_text())


def test_an_adapter_with_a_reference_goes_through_the_whole_protocol(adapted: tuple[Ran, dict[str, Any]]) -> None:
    ran, seen = adapted
    assert len(ran.of(CycleKind.RECORDED)) == 2
    assert ran.worst_case is not None
    assert seen["rank"] == 8
    assert 0 < seen["trained"] < seen["all"] / 10  # the base model is frozen
    assert seen["beta"] == 0.05


def test_rewards_keep_their_order_weights_and_sum(adapted: tuple[Ran, dict[str, Any]]) -> None:
    """0.5 from the user's ``trainer.py`` + 0.5 x 2 from the dotted path; the third gives 0, the fourth weighs 0."""
    ran, seen = adapted
    assert seen["weights"] == [1.0, 0.5, 1.0, 0.0]
    assert seen["names"][:2] == ["score", "two"]
    assert {cycle.reward_mean for cycle in ran.of(CycleKind.RECORDED)} == {1.5}


def test_the_reward_file_finds_its_own_trainer_module_and_environment(
    tiny: Path, adapted: tuple[Ran, dict[str, Any]]
) -> None:
    _, seen = adapted
    assert seen["trainer"] == str(tiny / "own" / "trainer.py")
    assert seen["switch"] == "7"
    assert seen["pushes"] is False  # a trial publishes nothing, whatever the file says


def test_prompts_go_through_the_users_template(adapted: tuple[Ran, dict[str, Any]]) -> None:
    """One token a byte: another template, or none, would give other prompt lengths."""
    ran, _ = adapted
    for cycle in ran.of(CycleKind.RECORDED):
        assert cycle.prompt_tokens == cycle.rows * len(RENDERED)


def test_the_math_verifier_is_a_process_of_the_trial_that_ends_with_it(adapted: tuple[Ran, dict[str, Any]]) -> None:
    ran, seen = adapted
    assert len(seen["helpers"]) == 1
    assert f"{TAG_VARIABLE}={TAG}" in seen["helpers"][0].split("\0")
    assert ran.result.data["math_verify_lost"] == 0
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "math_verifier.py" not in listed or TAG not in _environments_of_verifiers()


def _environments_of_verifiers() -> str:
    found = ""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"math_verifier.py" in (folder / "cmdline").read_bytes():
                found += (folder / "environ").read_bytes().decode()
        except OSError:
            continue
    return found


@pytest.fixture
def four_bit_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bitsandbytes for the trials of one test. In the training stack it would cost every trial a second to import."""
    folder = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), BITSANDBYTES]
    subprocess.run(install, check=True, capture_output=True)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{training_python()}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("AUTOTUNE_TEST_PYTHON", str(python))


@pytest.mark.full
@pytest.mark.usefixtures("four_bit_packages")
def test_four_bit_weights_are_a_workload(tiny: Path) -> None:
    """QLoRA, for real, also without a GPU."""
    rewards = own_files(tiny / "four")[:1]
    spec = tiny_spec(
        tiny, rewards, passthrough={"use_peft": True, "load_in_4bit": True, "chat_template_kwargs": {"closing": "=>"}}
    )
    ran = run_trial(tiny / "qlora", spec)
    assert ran.result.ok, (ran.result.message, ran.result.detail)
    seen = json.loads((tiny / "four" / "seen.json").read_text())
    assert seen["four_bit"]
    assert seen["rank"] is not None


def test_a_hub_commit_is_loaded_from_the_cache_without_the_network(
    tiny: Path, tmp_path: Path, preloads: Preloads
) -> None:
    """The very commit of the study: another one in the cache, or a hub that is down, must not matter."""
    commit = "a" * 40
    cache = tmp_path / "hub" / "models--someone--tiny"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("b" * 40)
    shutil.copytree(tiny / "model", cache / "snapshots" / commit)
    spec = replace(
        tiny_spec(tiny, own_files(tmp_path / "own")[:1], passthrough={"chat_template_kwargs": {"closing": "=>"}}),
        model="someone/tiny",
        revision=commit,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        ran = run_trial(tmp_path / "run", spec, preloads=preloads)
        gone = run_trial(tmp_path / "gone", replace(spec, revision="c" * 40), preloads=preloads)
    assert ran.result.ok, (ran.result.message, ran.result.detail)
    assert gone.result.reason is FailureReason.ILLEGAL
    assert "someone/tiny@" in gone.result.message
    assert "not in the cache" in gone.result.message
