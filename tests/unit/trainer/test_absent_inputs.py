"""A trial that fails while its model or its prompts are away is told as the machine's fault by the child itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainer.child import worker
from trainer.child.contract import FailureReason, Protocol, Result, RunPaths, TrialSpec, dumps, write_atomic
from trainer.child.failures import IllegalSettingError
from trainer.child.worker import ResultClaim


def _ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, gone: str) -> Result:
    framework = ModuleType("framework")

    def run_trial(_: Any) -> None:
        if gone:
            (tmp_path / gone).rename(tmp_path / "renamed")
        raise error

    framework.run_trial = run_trial  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "framework_of_test", framework)
    monkeypatch.setitem(worker.FRAMEWORKS, "trl", "framework_of_test")
    (tmp_path / "model").mkdir()
    (tmp_path / "prompts.jsonl").write_text("x\n")
    paths = RunPaths(tmp_path / "attempt")
    spec = TrialSpec(
        trial="1/0",
        framework="trl",
        model=str(tmp_path / "model"),
        prompts=str(tmp_path / "prompts.jsonl"),
        rewards=(),
        settings={},
        model_settings={},
        seams={},
        rows_per_update=8,
        max_prompt_length=16,
        max_completion_length=16,
        protocol=Protocol(),
    )
    paths.root.mkdir()
    write_atomic(paths.config, dumps(spec))
    return worker.run(paths, ResultClaim(paths))


@pytest.mark.parametrize("gone", ["model", "prompts.jsonl"])
@pytest.mark.parametrize(
    "error",
    [
        IllegalSettingError("there is no model folder /x"),
        FileNotFoundError(2, "No such file or directory", "prompts.jsonl"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
    ],
)
def test_what_fails_while_an_input_is_away_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, gone: str
) -> None:
    result = _ended(tmp_path, monkeypatch, error, gone)
    assert result.reason is FailureReason.INFRA
    assert str(tmp_path / gone) in result.message
    assert type(error).__name__ in result.detail


def test_what_fails_while_all_is_there_keeps_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _ended(tmp_path, monkeypatch, IllegalSettingError("no such optimizer"), "")
    assert (result.reason, result.message) == (FailureReason.ILLEGAL, "no such optimizer")
