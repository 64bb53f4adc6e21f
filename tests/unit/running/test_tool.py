from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason
from autotune.running.local import home_tag, tool_owner
from autotune.running.tool import run_tool
from tests.contracts.runner_suite import RealClock, tagged
from tests.support.scripted import GRACES, local_runner
from trainer.child.contract import TAG_VARIABLE, Result

HOME = f"tools-{os.getpid()}"
PROBE = """
import json, os, sys, time
directory = sys.argv[sys.argv.index("--directory") + 1]
payload = json.load(open(os.path.join(directory, "config.json")))
with open(os.path.join(directory, "phase"), "w") as stream:
    stream.write("load -1 ")
time.sleep(payload["sleep"])
if payload["answer"]:
    data = {"command": sys.argv[1], "asked": payload["asked"]}
    data["compiled"] = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    with open(os.path.join(directory, "result.json"), "w") as stream:
        json.dump({"ok": True, "data": data}, stream)
else:
    sys.exit("no such package")
"""


@pytest.fixture
def start(tmp_path: Path) -> Path:
    path = tmp_path / "probe.py"
    path.write_text(PROBE)
    return path


def ask(start: Path, *, sleep: float = 0.15, answer: bool = True, timeout: float = 10) -> Result:
    payload = {"sleep": sleep, "answer": answer, "asked": ["torch", "trl"]}
    where: dict[str, Any] = {"clock": RealClock(), "home": HOME, "start": start, "graces": GRACES}
    return run_tool(sys.executable, "probe", start.parent / "tool", payload, timeout, **where)


def test_a_tool_is_given_its_payload_and_answers_with_its_result(start: Path) -> None:
    result = ask(start)
    assert result.ok
    compiled = result.data.pop("compiled")
    assert result.data == {"command": "probe", "asked": ["torch", "trl"]}
    assert start.parent in Path(compiled).parents, "not in the folder for temporary files"


def test_an_earlier_answer_is_never_taken_for_a_later_one(start: Path) -> None:
    assert ask(start).ok
    result = ask(start, answer=False)
    assert not result.ok
    assert result.reason is FailureReason.CRASH
    assert "exit code 1" in result.message
    assert "no such package" in result.detail


def test_a_tool_that_takes_too_long_is_ended(start: Path) -> None:
    result = ask(start, sleep=600, timeout=0.3)
    assert (result.ok, result.reason) == (False, FailureReason.TIMEOUT)
    assert tagged(HOME) == []


def test_a_tool_whose_tuner_is_gone_is_swept_and_a_living_ones_is_not() -> None:
    argv = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    tags = {"orphan": f"autotune:{HOME}:tool:1-1:0", "owned": f"autotune:{HOME}:tool:{tool_owner()}:0"}
    children = {
        name: subprocess.Popen(argv, env={TAG_VARIABLE: tag}, start_new_session=True) for name, tag in tags.items()
    }
    try:
        assert local_runner(HOME).sweep(1) == (children["orphan"].pid,)
        assert children["owned"].poll() is None
    finally:
        for child in children.values():
            child.kill()
            child.wait()


def test_homes_have_different_tags_and_one_home_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert home_tag(tmp_path) == home_tag(tmp_path / "link")
    assert home_tag(tmp_path) != home_tag(tmp_path / "other")
    assert ":" not in home_tag(Path(os.sep))


@pytest.mark.parametrize(("command", "more"), [("prepare", {"model": "m", "data": "data.jsonl"}), ("probe", {})])
@pytest.mark.parametrize(("line", "said"), [("os._exit(0)", "exit code 0"), ("os._exit(7)", "exit code 7")])
def test_a_reward_that_ends_its_process_is_named_with_its_file(
    tmp_path: Path, command: str, more: dict[str, Any], line: str, said: str
) -> None:
    """The child's real commands; they load the reward before they import a framework."""
    reward = tmp_path / "reward.py"
    reward.write_text(f"import os\n{line}\ndef score(**_): return []\n")
    (tmp_path / "data.jsonl").write_text('{"prompt": "a"}\n')
    asked = {**more, "rewards": [{"kind": "file", "name": "score", "path": str(reward)}]}
    if command == "prepare":
        asked["data"] = str(tmp_path / "data.jsonl")
    else:
        asked = {**asked, "load": True, "modules": {}, "packages": []}
    where: dict[str, Any] = {"clock": RealClock(), "home": HOME, "graces": GRACES}
    result = run_tool(sys.executable, command, tmp_path / "tool", asked, 60, **where)
    assert result.reason is FailureReason.REWARD_ERROR
    assert f"the reward score in {reward} ended the process" in result.message
    assert said in result.message


def test_a_reward_that_exits_when_it_is_imported_is_named_with_its_file(tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("raise SystemExit(3)\n")
    asked = {"rewards": [{"kind": "file", "name": "score", "path": str(reward)}], "load": True, "modules": {}}
    where: dict[str, Any] = {"clock": RealClock(), "home": HOME, "graces": GRACES}
    result = run_tool(sys.executable, "probe", tmp_path / "tool", asked, 60, **where)
    assert result.reason is FailureReason.REWARD_ERROR
    assert f"{reward} cannot be loaded, which runs all of it: SystemExit" in result.message
