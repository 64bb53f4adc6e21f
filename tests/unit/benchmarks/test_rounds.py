"""Rounds of what is compared, within a time limit; and which configuration counts as competent."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

from autotune.domain import Configuration, Trial
from benchmarks.gpu import visit
from benchmarks.gpu.rounds import GUESS_S, expected_s, ratios, run_rounds
from tests.support import factories as f

BASE, FAST = f.configuration(), f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
OTHER = f.configuration(attn_implementation="eager")
CHOSEN = {"defaults": BASE, "competent": OTHER, "same learning": FAST}


class Machine:
    """Runs take ``seconds`` of a clock; those of ``broken`` fail, and one the end comes in is cut off."""

    def __init__(self, end: float, seconds: float = 10.0, broken: tuple[Configuration, ...] = ()) -> None:
        self.end, self.seconds, self.broken = end, seconds, broken
        self.now = 0.0
        self.kept: list[tuple[str, int]] = []
        self.bounds: list[float] = []

    def left(self) -> float:
        return self.end - self.now

    def run(self, configuration: Configuration, most_s: float) -> Trial:
        self.bounds.append(most_s)
        self.now += min(self.seconds, most_s)
        if configuration in self.broken or self.seconds > most_s:
            return f.failed(0, configuration=configuration, seconds=self.seconds)
        return f.finished(0, configuration=configuration, seconds=self.seconds, cycle_seconds=5.0)

    def keep(self, label: str, number: int, trial: Trial) -> None:
        self.kept.append((label, number))

    def rounds(self, took: float = 10.0) -> dict[str, list[Trial]]:
        return run_rounds(CHOSEN, dict.fromkeys(CHOSEN, took), self.run, self.left, self.keep)


def test_only_rounds_that_end_in_time_begin_and_every_second_one_is_turned_round() -> None:
    machine = Machine(end=95.0)
    found = machine.rounds()
    assert {label: len(runs) for label, runs in found.items()} == dict.fromkeys(CHOSEN, 3)
    order = list(CHOSEN)
    assert [label for label, _ in machine.kept] == [*order, *order[::-1], *order]
    assert [number for _, number in machine.kept] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert machine.now <= machine.end


def test_a_round_the_end_came_within_counts_for_nobody_but_its_runs_are_kept() -> None:
    machine = Machine(end=25.0)
    assert machine.rounds(took=1.0) == {}
    assert [label for label, _ in machine.kept] == ["defaults", "competent", "same learning"]
    assert machine.bounds == [25.0, 15.0, 5.0]


def test_what_fails_is_left_out_and_the_others_go_on() -> None:
    machine = Machine(end=70.0, broken=(OTHER,))
    found = machine.rounds()
    assert sorted(found) == ["defaults", "same learning"]
    assert [label for label, _ in machine.kept].count("competent") == 1
    assert len(found["defaults"]) == len(found["same learning"]) >= 2
    assert Machine(end=70.0, broken=(OTHER, FAST)).rounds().keys() <= {"defaults"}


def test_the_ratios_name_what_they_are_over() -> None:
    ran = {
        "defaults": [f.finished(0, cycle_seconds=10.0)],
        "competent": [f.finished(0, cycle_seconds=5.0)],
        "same learning": [f.finished(0, cycle_seconds=2.5)],
    }
    assert ratios(ran) == [
        "competent / defaults: 2.00 (1 round, no interval)",
        "same learning / defaults: 4.00 (1 round, no interval)",
        "same learning / competent: 2.00 (1 round, no interval)",
    ]
    twice = {label: runs * 2 for label, runs in ran.items()}
    assert "95 % interval 4.00 to 4.00, 2 rounds" in ratios(twice)[1]
    assert ratios({}) == []


def test_a_run_is_expected_to_take_what_it_took_in_the_study() -> None:
    trials = [f.finished(0, configuration=BASE, seconds=80.0), f.finished(1, configuration=BASE, seconds=90.0)]
    assert expected_s(CHOSEN, trials) == {"defaults": 90.0, "competent": GUESS_S, "same learning": GUESS_S}


def test_a_copy_holds_the_database_and_the_records_and_no_scratch(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    attempt = home / "runs" / "1-study" / "0" / "1"
    (attempt / "scratch").mkdir(parents=True)
    (attempt / "metrics.jsonl").write_text("{}\n")
    (attempt / "scratch" / "left.json").write_text("{}")
    (attempt / "weights.safetensors").write_text("w")
    database = sqlite3.connect(home / "autotune.sqlite")
    database.execute("create table t (x)")
    database.execute("insert into t values (7)")
    database.commit()
    visit.copy(str(home), str(out))
    visit.copy(str(home), str(out))
    assert sqlite3.connect(out / "autotune.sqlite").execute("select x from t").fetchall() == [(7,)]
    kept = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
    assert kept == ["autotune.sqlite", "runs/1-study/0/1/metrics.jsonl"]
    database.close()
    visit.copy(str(tmp_path / "nothing"), str(tmp_path / "empty"))
    assert list((tmp_path / "empty").iterdir()) == []


def test_the_inputs_are_a_recipe_prompts_and_a_reward(tmp_path: Path) -> None:
    visit.main(["inputs", str(tmp_path / "made"), "tiny", "32"])
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == ["prompts.jsonl", "recipe.json", "reward.py"]
    assert json.loads((tmp_path / "made" / "recipe.json").read_text())["config"]["num_hidden_layers"] == 2


@pytest.mark.parametrize("words", [[], ["copy"], ["copy", "a", "b", "c"], ["fly", "a"]])
def test_another_command_is_refused_with_those_there_are(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="inputs FOLDER ARCH PROMPT"):
        visit.main(words)


SCRIPT = Path(__file__).parents[3] / "benchmarks" / "gpu" / "quarter_hour.sh"


@pytest.mark.parametrize(
    ("word", "said"),
    [("--sort", "error: --sort is no option; expected --short"), ("nowhere", "nowhere holds no unpack.sh")],
)
def test_the_visit_refuses_what_it_does_not_know_and_makes_nothing(tmp_path: Path, word: str, said: str) -> None:
    ran = subprocess.run(["bash", str(SCRIPT), word], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert ran.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_visit_without_an_interpreter_ends_at_once_and_leaves_its_log(tmp_path: Path) -> None:
    places = {"OUT": str(tmp_path / "out"), "WORK": str(tmp_path / "work"), "PYTHON": "no-such-python"}
    words = ["bash", str(SCRIPT), "--cpu"]
    ran = subprocess.run(words, env={**os.environ, **places}, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "error: PYTHON or TOOL names no interpreter" in ran.stderr
    assert "begins: 780 s for study forms rounds tests" in (tmp_path / "out" / "visit.log").read_text()
