"""The user's own file in, the answer out and run: if this fails, the round trip the tool promises is broken."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.commands import autotune, document, tagged
from tests.support.imports import text_of
from tests.support.trl_trials import build_tiny, training_python
from trainer.frameworks.trl.keys import KEYS

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(900)]

OWN = text_of("trl_exported.yaml")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = build_tiny(tmp_path_factory.mktemp("user"))
    (folder / "data").mkdir()
    (folder / "prompts.jsonl").rename(folder / "data" / "train.jsonl")
    (folder / "mine.py").write_text(
        "from trainer import BONUS\n\n\n"
        "def score(prompts, completions, **columns):\n    return [BONUS + len(c) % 3 for c in completions]\n"
    )
    (folder / "trainer.py").write_text("BONUS = 0.5\n")
    (folder / "grpo.yaml").write_text(OWN)
    return folder


@pytest.fixture(scope="module")
def home(user: Path) -> Path:
    home = user / "home"
    begun = autotune(
        "start", "--config", "grpo.yaml", "--python", training_python(), "--max-trials", "4", "--no-live", "--no-serve",
        home=home, cwd=user,
    )  # fmt: skip
    assert begun.returncode == 0, begun.stderr[-3000:]
    return home


def test_the_exported_file_is_the_users_own_with_other_knobs(home: Path, user: Path, tmp_path: Path) -> None:
    trials = document("trials", home=home, cwd=tmp_path)["trials"]
    whole = [t["number"] for t in trials if t["kind"] == "search" and t["state"] == "COMPLETE"]
    assert whole, "one row at a time is slow, so of three other configurations one is not ended early"
    made = document("export", "--trial", str(whole[0]), "-o", str(tmp_path / "out"), home=home, cwd=tmp_path)
    text = (tmp_path / "out" / "grpo.yaml").read_text()
    changed = [line for line in difflib.ndiff(OWN.splitlines(), text.splitlines()) if line[0] in "+-"]
    assert changed
    assert {line[2:].split(":")[0] for line in changed} <= set(KEYS)
    assert made["command"]["folder"] == str(user)
    configuration = made["row"]["configuration"]
    assert yaml.safe_load(text)["per_device_train_batch_size"] == configuration["micro_batch_size"]


def test_verify_measures_it_from_outside_and_best_says_so(home: Path, user: Path, tmp_path: Path) -> None:
    done = autotune("verify", "--updates", "2", "--json", home=home, cwd=tmp_path)
    assert done.returncode in (0, 3, 5), done.stderr  # a busy machine may be 5 % off, or busier than then
    verdict = json.loads(done.stdout)
    assert (done.returncode == 0, done.returncode == 5) == (verdict["within_5_percent"], verdict["undecided"])
    assert verdict["updates"] in (1, 2)  # one in which another test took CPU time is left out
    assert 0 < verdict["observed_mean_completion_tokens"] <= verdict["observed_longest_completion_tokens"] <= 16
    assert "verified" in " ".join(autotune("best", home=home, cwd=tmp_path).stdout.split())
    assert not (user / "out").exists()
    assert tagged(home) == []


def test_the_framework_itself_runs_the_baseline_and_another_in_turns(home: Path, user: Path, tmp_path: Path) -> None:
    trials = document("trials", home=home, cwd=tmp_path)["trials"]
    other = next(t["number"] for t in trials if t["kind"] == "search" and t["state"] == "COMPLETE")
    words = ("--against-baseline", "--trial", str(other), "--rounds", "1", "--updates", "3", "--json")
    done = autotune("verify", *words, home=home, cwd=tmp_path)
    assert done.returncode in (0, 3, 5), done.stderr  # the other tests disturb it
    verdict = json.loads(done.stdout)
    turns = [(step["run"], step["round"]) for step in verdict["steps"]]
    assert set(turns) == {("baseline", 1), ("answer", 1)}
    assert all(turns.count(turn) in (3, 6, 9) for turn in set(turns)), "a turn that was disturbed is repeated"
    assert all(step["step_seconds"] > 0 and 8 <= step["tokens"] <= 8 * 16 for step in verdict["steps"])
    assert verdict["interval_holds"] in {0: (True,), 3: (False,), 5: (None,)}[done.returncode]
    assert not (user / "out").exists()
    assert tagged(home) == []
