"""Bad input, typed as a user would: exit code 2, one sentence that names the thing, and nothing in the database.

What needs no child is in ``tests/fixtures/refusals.yaml``.
"""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from tests.e2e.commands import autotune, environment_for
from tests.support import here
from tests.support.trl_trials import build_tiny, training_python
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.trl

CONFIG = """# a run of mine
model_name_or_path: model
dataset_name: data
reward_funcs: [my_rewards.score]
per_device_train_batch_size: 4
num_generations: 4
max_completion_length: 16
"""
REWARDS = """
def score(completions, **columns): return [0.0 for _ in completions]
def raising(completions, **columns): return [columns["solution"] for _ in completions]
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a tiny model, data, rewards and a config; and what is wrong with copies of them."""
    folder = build_tiny(tmp_path_factory.mktemp("work"))
    (folder / "data").mkdir()
    shutil.copy(folder / "prompts.jsonl", folder / "data" / "train.jsonl")
    (folder / "my_rewards.py").write_text(REWARDS)
    lines = (folder / "prompts.jsonl").read_text().splitlines()
    (folder / "torn.jsonl").write_text("\n".join([*lines[:6], '{"prompt": "a', *lines[6:]]))
    (folder / "other.jsonl").write_text('{"question": "1 + 1"}\n')
    (folder / "grpo.yaml").write_text(CONFIG)
    for name, more in {
        "twice": "beta: 0.1\nbeta: 0.2\n",
        "group": "gradient_accumulation_steps: 3\nsteps_per_generation: 2\n",
        "evaluation": "eval_strategy: steps\nper_device_eval_batch_size: 3\n",
    }.items():
        (folder / f"{name}.yaml").write_text(CONFIG + more)
    (folder / "trl.yaml").write_text(CONFIG.replace("num_generations: 4", "num_generations: 3"))
    (folder / "namereward.yaml").write_text(CONFIG.replace("my_rewards.score", "acuracy_reward"))
    (folder / "space_illegal.yaml").write_text("knobs:\n  num_generations: [3, 5]\n")
    return folder


OWN = "--model model --data prompts.jsonl --reward my_rewards.py:score"

INPUTS = {
    "no such model": ("--model nowhere", "there is no model folder"),
    "broken line": ("--model model --data torn.jsonl --reward my_rewards.py:score", "torn.jsonl, line 7: not JSON"),
    "no prompt": ("--model model --data other.jsonl --reward my_rewards.py:score", "other.jsonl, line 1: it needs"),
    "no such task": ("--model model --task reasoning-gym:chain_sums", "'chain_sums' cannot be made"),
    "no function": ("--model model --data prompts.jsonl --reward my_rewards.py:scor", "has no function 'scor'"),
    "raises": ("--model model --data prompts.jsonl --reward my_rewards.py:raising", "raised KeyError: 'solution'"),
    "odd batch": (f"{OWN} --effective-batch 10 --set micro_batch_size=4", "choose --effective-batch"),
    "twice": ("--config twice.yaml", "twice.yaml, line 9: beta is given twice"),
    "group": ("--config group.yaml", "group.yaml, line 9: no trial can measure the baseline, which the framework"),
    "refused by TRL": (
        "--config trl.yaml",
        "trl.yaml, line 6: generation_batch_size (4) must be divisible by num_generations",
    ),
    "evaluation": ("--config evaluation.yaml", "evaluation.yaml: The global eval batch size (3 * 1) must be divisible"),
    "config reward name": ("--config namereward.yaml", "no reward function named 'acuracy_reward'"),
    "illegal space": (
        f"{OWN} --space space_illegal.yaml",
        "no combination of the space but the baseline is legal here; rule",
    ),
}


WITH_THE_FRAMEWORK = frozenset(
    {"group", "refused by TRL", "evaluation", "config reward name", "odd batch", "raises", "illegal space"}
)
"""Judged after torch or transformers has been imported, some seconds each; more of these are in unit tests."""


def case(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.full) if name in WITH_THE_FRAMEWORK else name


def refused(arguments: list[str], said: str, work: Path, *, alone: bool = False) -> None:
    """``alone``: in a process of its own, most of whose time goes to imports."""
    home = work / "home"
    words = ("start", "--python", training_python(), "--no-serve", *arguments)
    if alone:
        done = autotune(*words, home=home, cwd=work, timeout=PATIENCE_S)
    else:
        done = here.autotune(words, work, environment_for(home))
    assert done.returncode == 2, (done.returncode, done.stderr)
    talk, _, last = done.stderr.strip().rpartition("autotune: ")
    assert said in last
    assert all(line.startswith("  ") for line in last.splitlines()[1:])  # a file with several faults: one a line
    assert "Traceback" not in talk
    assert "autotune: " not in talk
    assert done.stdout == ""
    written = (home / "autotune.sqlite").exists()
    (home / "autotune.sqlite").unlink(missing_ok=True)  # the next case shares the home, for the answers kept in it
    assert not written
    assert not list(home.glob("crashes/*"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [case(name) for name in INPUTS])
def test_inputs(work: Path, name: str) -> None:
    arguments, said = INPUTS[name]
    refused(["--budget", "1m", *arguments.split()], said, work, alone=name in ("twice", "no such model"))


def test_the_same_folder_unspoilt_is_accepted(work: Path) -> None:
    """Else everything above could be refused for another reason."""
    done = autotune(
        "start", "--python", training_python(), "--budget", "1m", "--config", "grpo.yaml", "--dry-run",
        home=work / "home", cwd=work, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 rows per update" in done.stdout
    kept = list((work / "home" / "prompts").glob("*.jsonl"))
    assert [json.loads(line)["answer"] for line in kept[0].read_text().splitlines()] == [str(i) for i in range(32)]


@pytest.mark.full
def test_a_port_in_use_begins_no_study(work: Path) -> None:
    home = work / "home"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = autotune(
            "start", "--python", training_python(), "--budget", "1m", *OWN.split(), "--port", str(port),
            home=home, cwd=work, timeout=PATIENCE_S,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith(f"autotune: --port {port} cannot be used")
    assert not (home / "autotune.sqlite").exists()
