"""What a run is made from, and what pytest's report is taken to say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks.gpu import checks, inputs

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4">
<testcase classname="tests.gpu.test_engine" name="test_good" time="1.0" />
<testcase classname="tests.gpu.test_engine" name="test_bad"><failure message="assert 1 == 2">where</failure></testcase>
<testcase classname="tests.gpu.test_engine" name="test_worse"><error message="failed on setup" /></testcase>
<testcase classname="tests.gpu.test_engine" name="test_absent">
<skipped type="pytest.skip" message="the training environment has no vllm" /></testcase>
</testsuite></testsuites>
"""


def test_a_report_is_counted_with_its_reasons(tmp_path: Path) -> None:
    """An error without text is one too: counted as passed it would hide that nothing was tested."""
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    found = checks.counted(path)
    assert found.passed == 1
    assert found.failed == ("test_bad: assert 1 == 2", "test_worse: failed on setup")
    assert found.skipped == ("test_absent: the training environment has no vllm",)


def test_every_file_of_gpu_tests_is_run() -> None:
    names = {path.name for path in checks.files()}
    assert {"test_trial_on_device.py", "test_gpu_guard.py", "test_engine.py", "test_continuous_batching.py"} <= names
    assert checks.lacking() is None


@pytest.mark.parametrize("longest", [16, 48, 256, 1000])
def test_prompts_are_of_many_lengths_and_the_same_each_time(tmp_path: Path, longest: int) -> None:
    """Tokens are bytes here. One prompt has the greatest length, or the worst case would be a smaller one."""
    text = inputs.prompts(tmp_path, longest, 0).read_text()
    assert inputs.prompts(tmp_path, longest, 0).read_text() == text
    assert longest < 32 or inputs.prompts(tmp_path, longest, 1).read_text() != text
    sizes = [len(json.loads(line)["prompt"].encode()) for line in text.splitlines()]
    assert max(sizes) == sizes[0] == longest
    assert len(set(sizes)) > 1 or longest < inputs.SHORTEST


def test_the_reward_differs_within_a_group(tmp_path: Path) -> None:
    """Rewards that are all the same would make every advantage, and so every gradient, nothing."""
    spec = inputs.reward(tmp_path)
    found = importlib.util.spec_from_file_location("reward", spec.path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    scores = getattr(module, spec.name)([], ["", "aeiou", " xyz", "banana"])
    assert len(scores) == 4
    assert len(set(scores)) == 3
    assert all(0.0 <= score <= 1.0 for score in scores)
