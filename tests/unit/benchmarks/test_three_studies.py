"""The table of three studies in short calls: steps run once, go on by themselves, and begin again when killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks import three_studies
from benchmarks.background import Running
from benchmarks.three_studies import CASES, EXIT_FAILED, EXIT_MORE, Case, Place, Step, go_on, steps, write_inputs
from search_spaces.space import SearchSpace
from tests.support.waiting import PATIENCE_S, wait_for

VERDICT = {
    "stated_tokens_per_hour": 226_000.0, "predicted_tokens_per_hour": 210_000.0, "measured_tokens_per_hour": 190_000.0,
    "raw_tokens_per_hour": 185_000.0, "ratio": 0.905, "ratio_low": 0.89, "ratio_high": 0.92, "within_5_percent": False,
    "stated_mean_completion_tokens": 56.0, "observed_mean_completion_tokens": 48.0, "cycles": 90, "disturbed_cycles": 2,
    "reason": "update took 0.50 s a cycle longer than predicted (2.50 s instead of 2.00 s)",
}  # fmt: skip
TOOL = """
import json, os, sys, time
words = sys.argv[1:]
with open({seen!r}, "a") as stream:
    stream.write(" ".join(words[:2]) + "\\n")
while not os.path.exists({go!r}):
    time.sleep(0.01)
if words[0] == "verify":
    print(json.dumps({verdict!r}))
    sys.exit({code})
"""


def place(folder: Path, held: bool = False, code: int = 3) -> Place:
    """Where the tool is a script that, if ``held``, ends when there is a file ``go``."""
    tool, go = folder / "tool.py", folder / "go" if held else folder
    tool.write_text(TOOL.format(seen=str(folder / "seen.txt"), go=str(go), verdict=VERDICT, code=code))
    return Place(folder / "out", sys.executable, "/models/small", tool=(sys.executable, str(tool)))


def seen(folder: Path) -> list[str]:
    path = folder / "seen.txt"
    return path.read_text().splitlines() if path.exists() else []


WHERE = tuple(replace(case, random=False) for case in CASES)
"""Without the step that needs a training interpreter."""


def soon() -> float:
    return time.monotonic() + PATIENCE_S


def test_every_study_is_run_then_every_long_run_and_a_later_call_only_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = place(tmp_path)
    assert go_on(here, soon(), WHERE) == 0
    names = [case.name for case in CASES]
    assert seen(tmp_path) == ["start --name"] * 3 + [f"verify {name}" for name in names]
    out = capsys.readouterr().out
    assert "| short-vllm | 226.0k | 210.0k | 190.0k | -9.5 % (-11.0 % to -8.0 %) | -18.1 % | 56.0, 48.0 |" in out
    assert out.count("update took 0.50 s a cycle longer") == 3
    assert go_on(here, soon(), WHERE) == 0
    assert len(seen(tmp_path)) == 6
    assert "| long-vllm |" in capsys.readouterr().out


def test_a_step_outlives_its_call_and_the_next_one_waits_for_it(tmp_path: Path) -> None:
    here = place(tmp_path, held=True)
    assert go_on(here, time.monotonic() + 0.3, WHERE[:1]) == EXIT_MORE
    (tmp_path / "go").touch()
    assert go_on(here, soon(), WHERE[:1]) == 0
    assert seen(tmp_path) == ["start --name", "verify short-vllm"], "nothing was begun twice"


def test_a_step_that_was_killed_begins_again_and_one_that_failed_is_tried_by_the_next_call(tmp_path: Path) -> None:
    here = place(tmp_path, held=True)
    assert go_on(here, time.monotonic() + 0.3, WHERE[:1]) == EXIT_MORE
    wait_for(lambda: seen(tmp_path), "the tool's first word")
    number = int((here.out / "steps" / "short-vllm.study.pid").read_text())
    os.killpg(number, signal.SIGKILL)
    bad = place(tmp_path, code=1)
    assert go_on(bad, soon(), WHERE[:1]) == EXIT_FAILED
    assert seen(tmp_path).count("start --name") == 2
    good = place(tmp_path, code=0)
    assert go_on(good, soon(), WHERE[:1]) == 0
    assert seen(tmp_path).count("verify short-vllm") == 2


def test_stopping_leaves_nothing_running_and_the_step_undone(tmp_path: Path) -> None:
    base = tmp_path / "steps" / "one"
    step = Running(base, (sys.executable, "-c", "import time; time.sleep(600)"), tmp_path)
    step.start()
    assert step.alive() is not None
    step.stop()
    assert step.alive() is None
    assert step.ended() is None


def test_a_process_that_only_has_its_number_is_not_taken_for_it(tmp_path: Path) -> None:
    step = Running(tmp_path / "one", ("true",), tmp_path)
    (tmp_path / "one.pid").write_text(str(os.getpid()))
    assert step.alive() is None


def test_the_inputs_are_spaces_the_tool_reads_and_the_studies_differ(tmp_path: Path) -> None:
    here = place(tmp_path)
    write_inputs(here)
    write_inputs(here)
    for case in CASES:
        written = here.out / f"{case.name}.yaml"
        assert SearchSpace.load(str(written)).values, "something is searched"
        assert yaml.safe_load(written.read_text())["knobs"]["rollout_engine"] == [
            "vllm" if case.vllm else "transformers"
        ]
    assert len({(c.longest, c.vllm, c.random) for c in CASES}) == 3
    prompts = [json.loads(line) for line in (here.out / "prompts.jsonl").read_text().splitlines()]
    assert len({p["prompt"] for p in prompts}) > 64


def test_the_random_model_is_made_first_and_has_fifteen_million_parameters(tmp_path: Path) -> None:
    kinds = [step.kind for step in steps(place(tmp_path))]
    assert kinds == ["model", "study", "study", "study", "verify", "verify", "verify"]
    assert 13e6 < three_studies.RANDOM.parameters < 17e6
    assert isinstance(CASES[0], Case)
    assert isinstance(steps(place(tmp_path))[0], Step)
