import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from autotune.cli.doctor import training_checks
from autotune.cli.doctor.findings import Finding, Verdict
from autotune.cli.doctor.place_checks import check_database, check_disk, check_folders, check_home
from autotune.cli.doctor.training_checks import (
    OPTIONAL,
    check_optional,
    check_rewards,
    check_trackers,
    check_training,
    check_versions,
)
from autotune.errors import MachineError, StoreError
from autotune.frameworks import environments
from autotune.machine import hardware, other_load
from autotune.machine.other_load import CpuLoad
from autotune.running.tool import NO_PYTHON
from autotune.settings import HomePaths, read_settings
from autotune.specification import interpreter
from autotune.specification.config_faults import Faults
from tests.support import factories
from tests.support.imports import of
from tests.unit.cli.conftest import Run
from trainer.child.contract import FailureReason, Result
from trainer.child.frameworks.trl import cpu_deepspeed, engine

GIB = factories.GIB


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU, nothing else running, a fixed clock: what the machine the tests run on does is no finding."""
    monkeypatch.setattr(hardware, "visible_gpus", lambda *_: ())
    monkeypatch.setattr(other_load, "sample_load", lambda _: CpuLoad(0.01))
    monkeypatch.setattr(other_load, "governors", lambda: ("performance",))
    monkeypatch.setattr(other_load, "available_memory", lambda: None)


def python(tmp_path: Path) -> Any:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_a_machine_that_is_ready(autotune: Run, home: HomePaths) -> None:
    code, out, err = autotune("doctor")
    assert (code, err) == (0, "")
    words = " ".join(out.split())  # where a line breaks depends on the length of paths
    assert re.search(r"A study can run here(\.|; \d warnings? above\.)", words), "a busy machine is warned of"
    assert "torch 2.13.0" in words
    assert "none visible; trials run on the CPU" in words
    assert home.root.is_dir()
    assert max(len(line) for line in out.splitlines()) <= 80


def test_as_json(autotune: Run) -> None:
    document = json.loads(autotune("doctor", "--json")[1])
    assert document["ok"] is True
    names = [finding["name"] for finding in document["findings"]]
    expected = ["tuner", "home", "disk", "database", "machine", "CPU clock", "load", "GPU", "training", "optional"]
    of_machine = ("versions", "compiler", "shared memory", "open files", "locked memory", "user", "process 1")
    assert [name for name in names if name not in of_machine] == expected
    assert all(finding["command"] is None for finding in document["findings"] if finding["verdict"] == "ok")


def test_a_problem_is_exit_five_with_the_command_that_mends_it(autotune: Run, wiring: Any) -> None:
    wiring.probe = lambda python: {"python": "3.11", "packages": {"torch": "2.13.0"}}
    code, out, _ = autotune("doctor")
    assert code == 5
    assert "lacks trl, transformers, accelerate, datasets" in " ".join(out.split())
    assert "-m pip install torch 'trl>=1.16,<1.17'" in " ".join(out.split())
    assert "No study can run here yet." in out
    assert autotune("doctor", "--json")[0] == 5


def test_an_interpreter_that_cannot_be_asked(tmp_path: Path) -> None:
    (found,) = check_training(python(tmp_path), Mock(side_effect=MachineError("it ended with exit code 127")))
    assert found.verdict is Verdict.PROBLEM
    assert "exit code 127" in found.detail
    assert found.command.startswith(python(tmp_path))


@pytest.mark.parametrize("program", ["true", "false", "cat", "sh"])
def test_a_program_that_is_no_python_is_told_as_that_and_is_given_no_package(program: str) -> None:
    (found,) = check_training(program, interpreter.probe)
    assert found.verdict is Verdict.PROBLEM
    assert NO_PYTHON in found.detail
    assert found.command == ""


def test_a_tracker_of_the_configuration_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.11/site-packages/mlflow").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    own = python(tmp_path / "bin")
    keys = {"report_to": ["wandb", "mlflow"]}
    (found,) = check_trackers(own, keys)
    assert [each.name for each in check_trackers(own, {"trainer.logger": ["console", "wandb"]})] == ["trainer.logger"]
    assert (found.verdict, found.command) == (Verdict.WARNING, f"{own} -m pip install wandb")
    assert check_trackers(own, {"report_to": "none"}) == check_trackers(own, {}) == []
    assert check_trackers(python(tmp_path), keys) == [], "nothing is known of an interpreter elsewhere"


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    (found,) = check_training(str(tmp_path / "missing"), lambda _: pytest.fail("asked a program that is not there"))
    assert found.verdict is Verdict.PROBLEM
    assert "venv" in found.command


def test_a_trl_the_meter_was_not_checked_with_is_a_warning(tmp_path: Path) -> None:
    packages = {**FULL, "trl": "0.18.0", "transformers": "4.52.3"}
    (found,) = check_training(python(tmp_path), lambda _: {"packages": packages, "trl_supported": False})
    assert found.verdict is Verdict.WARNING
    assert "trl>=1.16,<1.17" in found.command


@pytest.mark.parametrize(
    ("free", "verdict"), [(100 * GIB, Verdict.OK), (5 * GIB, Verdict.WARNING), (GIB // 2, Verdict.PROBLEM)]
)
def test_disk_space(tmp_path: Path, free: int, verdict: Verdict) -> None:
    found = check_disk(tmp_path / "not" / "yet", lambda path: free if path == tmp_path else 0)
    assert found.verdict is verdict
    assert bool(found.command) == (verdict is not Verdict.OK)


def test_disk_space_that_cannot_be_told(tmp_path: Path) -> None:
    assert check_disk(tmp_path, Mock(side_effect=OSError(5, "Input/output error"))).verdict is Verdict.WARNING


def test_a_broken_database_is_moved_aside_not_deleted(home: HomePaths) -> None:
    home.prepare()
    home.database.write_text("")

    found = check_database(read_settings(), Mock(side_effect=StoreError("the file is not a database")))
    assert found.verdict is Verdict.PROBLEM
    assert found.command == f"mv {home.database} {home.database}.broken"


def test_a_database_elsewhere_is_not_touched(home: HomePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DATABASE", "postgresql://user:secret@host/name")

    found = check_database(read_settings(), Mock(side_effect=StoreError("cannot be reached")))
    assert found.command == "unset AUTOTUNE_DATABASE"
    assert "secret" not in found.detail + found.command
    reached = check_database(read_settings(), lambda: 3, "2")
    assert reached.detail == "3 studies in postgresql://host/name, schema 2"


def test_looking_makes_no_database(autotune: Run, home: HomePaths) -> None:
    code, out, _ = autotune("doctor")
    assert code == 0
    assert "none yet; `autotune start` makes" in " ".join(out.split())
    assert not home.database.exists()


def test_a_database_of_a_newer_version_is_not_moved_aside(home: HomePaths) -> None:
    home.prepare()
    home.database.write_text("")

    newer = Mock(side_effect=StoreError("it is of version 9999; upgrade autotune, or name another database"))
    assert "pip install --upgrade" in check_database(read_settings(), newer).command


def test_a_real_broken_database_through_the_command(autotune: Run, home: HomePaths) -> None:
    home.prepare()
    home.database.write_bytes(b"no database" * 500)
    code, out, err = autotune("doctor")
    assert (code, err) == (5, "")
    assert "database" in out
    assert ".broken" in out


def test_a_home_below_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "file" / "home"))
    found = check_home(read_settings())
    assert found.verdict is Verdict.PROBLEM
    assert found.command.startswith("export AUTOTUNE_HOME=")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_home_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o500)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    assert check_home(read_settings()).verdict is Verdict.PROBLEM


PACKAGES = {
    "torch": "2.13.0+cpu",
    "trl": "1.16.2",
    "transformers": "5.17.0",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
}


def test_a_torch_for_the_cpu_beside_a_gpu_is_a_problem(tmp_path: Path) -> None:
    answer = {"packages": PACKAGES, "trl_supported": True}
    (found,) = check_training(python(tmp_path), lambda _: answer, gpus=[(9, 0)])
    assert found.verdict is Verdict.PROBLEM
    assert "cannot use the GPU" in found.detail
    assert check_training(python(tmp_path), lambda _: answer)[0].verdict is Verdict.OK


def test_versions_outside_what_was_tested_are_one_warning() -> None:
    window = [
        Requirement("torch==2.13.0"),
        Requirement("transformers>=5.10,<5.18"),
        Requirement("reasoning-gym==0.1.25"),
    ]
    assert check_versions(PACKAGES, window, "pip install") == []
    (found,) = check_versions({**PACKAGES, "transformers": "5.20.0", "torch": "weird"}, window, "pip install")
    assert found.verdict is Verdict.WARNING
    assert "transformers 5.20.0 (tested: <5.18,>=5.10)" in found.detail
    assert found.command == "pip install torch==2.13.0 'transformers<5.18,>=5.10'"


FULL = {**PACKAGES, "vllm": "0.31.0", "deepspeed": "0.19.8", "torchao": "0.18.0", "bitsandbytes": "0.49.0"}


def optional(packages: dict[str, str], *, gpus: bool = False) -> list[Finding]:
    return check_optional(packages, "pip install", gpus=gpus)


def test_what_is_optional_is_told_whether_it_is_there_or_not() -> None:
    (found,) = optional(FULL, gpus=True)
    assert found.verdict is Verdict.OK
    assert found.detail == "vllm 0.31.0, deepspeed 0.19.8, torchao 0.18.0, bitsandbytes 0.49.0"
    (bare,) = optional(PACKAGES)
    assert bare.verdict is Verdict.OK
    assert "not installed: vllm (completions by vLLM), deepspeed (ZeRO), torchao (FP8 training)" in bare.detail


@pytest.mark.parametrize(
    ("packages", "gpus", "name", "part", "command"),
    of("what_no_trial_can_use_is_a_warning_with_the_command_that_mends_it"),
)
def test_what_no_trial_can_use_is_a_warning_with_the_command_that_mends_it(
    packages: dict[str, str], gpus: bool, name: str, part: str, command: str
) -> None:
    (_, found) = optional({**FULL, **packages}, gpus=gpus)
    assert (found.name, found.verdict, found.command) == (name, Verdict.WARNING, command)
    assert part in found.detail


@pytest.mark.parametrize(
    ("torch", "vllm", "gpus", "warned"),
    [
        ("2.13.0+cu130", "", [(9, 0)], True),
        ("2.11.0", "", [(8, 0), (10, 3)], True),
        ("2.13.0+cu130", "0.31.0", [(9, 0)], False),
        ("2.10.0", "", [(9, 0)], False),
        ("2.13.0+cu130", "", [(8, 9), (12, 0)], False),
        ("2.13.0+cu130", "", [], False),
        ("strange", "", [(9, 0)], False),
    ],
)
def test_cudnns_attention_is_told_of_where_torch_takes_it_and_nothing_switches_it_off(
    torch: str, vllm: str, gpus: list[tuple[int, int]], warned: bool, tmp_path: Path
) -> None:
    packages = {**FULL, "torch": torch, "vllm": vllm}
    found = check_training(python(tmp_path), lambda _: {"python": "3.11.7", "packages": packages}, gpus=gpus)
    said = [each.detail for each in found if each.name == "attention"]
    assert len(said) == warned
    assert all("torch.backends.cuda.enable_cudnn_sdp(False)" in text and torch in text for text in said)


def test_doctor_knows_the_versions_the_seams_were_made_for() -> None:
    """Otherwise doctor would praise a version whose trials are refused."""
    windows = {o.name: o.known for o in OPTIONAL}
    for name, (low, high) in {"vllm": engine.SUPPORTED, "deepspeed": cpu_deepspeed.SUPPORTED["deepspeed"]}.items():
        assert windows[name] == SpecifierSet(f">={low[0]}.{low[1]},<{high[0]}.{high[1]}")


def test_the_tested_window_is_that_of_our_own_extra() -> None:
    assert {r.name for r in training_checks.tested()} >= {"torch", "trl", "transformers"}
    assert all("extra" in str(r.marker) for r in training_checks.tested())


def test_a_reward_that_cannot_be_loaded_is_a_problem_with_its_command() -> None:
    lacks = Result(False, FailureReason.ILLEGAL, message="/env/python lacks math_verify; install with: pip install x")
    found = check_rewards(["math-verify"], lacks)
    assert (found.verdict, found.command) == (Verdict.PROBLEM, "pip install x")
    assert found.detail == "/env/python lacks math_verify"
    assert check_rewards(["score (file)"], Result(True)).detail == "score (file): found"


def test_rewards_and_packages_of_the_options_are_asked_for(
    autotune: Run, wiring: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    wiring.check_rewards = lambda *arguments: asked.append(arguments) or Result(False, message="no such package")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def score(): ...")
    (tmp_path / "grpo.yaml").write_text("reward_funcs: [accuracy_reward]\nuse_peft: true\nuse_vllm: true\n")
    code, out, _ = autotune("doctor", "--reward", "mine.py:score", "--task", "reasoning-gym:chain_sum")
    assert code == 5
    assert "no such package" in out
    (_, rewards, packages) = asked.pop()
    assert [(r.kind, r.name) for r in rewards] == [("file", "score"), ("reasoning_gym", "chain_sum")]
    autotune("doctor", "--config", "grpo.yaml")
    (_, rewards, packages) = asked.pop()
    assert [(r.kind, r.name) for r in rewards] == [("trl", "accuracy_reward")]
    assert packages == ("peft", "vllm")
    autotune("doctor")
    assert asked == []


SWIFT = {
    "torch": "2.13.0",
    "swift": "4.6.0",
    "trl": "0.29.1",
    "transformers": "5.10.4",
    "accelerate": "1.15.0",
    "datasets": "4.8.4",
    "peft": "0.20.0",
    "msgspec": "0.19.0",
}


def test_another_frameworks_environment_is_compared_with_what_that_one_needs(autotune: Run, wiring: Any) -> None:
    asked = []

    def probe(python: str, environment: Any) -> Any:
        asked.append(environment.modules["swift"])
        return {"python": "3.11.7", "packages": SWIFT}

    wiring.probe = probe
    code, out, _ = autotune("doctor", "--framework", "swift")
    words = " ".join(out.split())
    assert (code, asked) == (0, ["ms-swift"])
    assert "swift 4.6.0, trl 0.29.1" in words
    wiring.probe = lambda *_: {"python": "3.11.7", "packages": {**SWIFT, "trl": "1.16.0"}}
    code, out, _ = autotune("doctor", "--framework", "ms_swift")
    assert code == 5
    assert "-m pip install 'trl>=0.26,<1'" in " ".join(out.split())


def test_a_python_a_framework_has_no_release_for_is_a_problem(autotune: Run, wiring: Any) -> None:
    needed = {each.name: "1" for each in environments.VERL.needed}
    wiring.probe = lambda *_: {"python": "3.13.1", "packages": needed}
    code, out, _ = autotune("doctor", "--framework", "verl")
    assert code == 5
    assert "needs an environment with Python >=3.10,<3.13" in " ".join(out.split())


def test_verl_is_told_of_more_cpus_than_a_small_machine_has(
    autotune: Run, wiring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring.probe = lambda *_: {"python": "3.12.1", "packages": {}}
    output = {}
    for cores in (2, 12):
        monkeypatch.setattr(hardware, "usable_cores", lambda cores=cores: cores)
        output[cores] = " ".join(autotune("doctor", "--framework", "verl")[1].split())
    assert "verl holds 12 CPUs in Ray's count" in output[2]
    assert "Ray's count" not in output[12]


def test_a_folder_that_a_package_of_the_environment_hides_is_a_warning(tmp_path: Path) -> None:
    names = environments.VERL.folders
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    found = check_folders(names, tmp_path)
    assert [(each.verdict, each.command.split("/")[-2]) for each in found] == (
        [(Verdict.WARNING, name) for name in names if name != "tests"]
    )
    for each in found:
        Path(each.command.removeprefix("touch ")).touch()
    assert check_folders(names, tmp_path) == []
    assert check_folders(names, tmp_path / "elsewhere") == []


@pytest.mark.parametrize(("value", "named"), [("true", True), ("false", False)])
def test_what_a_script_of_another_framework_needs_is_asked_for(
    autotune: Run, wiring: Any, tmp_path: Path, value: str, named: bool
) -> None:
    wiring.probe = lambda *_: {"python": "3.11.7", "packages": SWIFT}
    asked: list[Any] = []

    def check_rewards(python: str, rewards: Any, packages: Any, environment: Any) -> Any:
        asked.append((rewards[0].kind, packages, environment.modules["swift"]))
        return Result(ok=True)

    wiring.check_rewards = check_rewards
    script = tmp_path / "train.sh"
    mode = " --vllm_mode colocate" if named else ""
    script.write_text(f"swift rlhf --rlhf_type grpo --model m --use_vllm {value}{mode} --reward_funcs accuracy\n")
    code, out, err = autotune("doctor", "--framework", "swift", "--config", str(script))
    assert (code, err) == (0, "")
    assert asked == [("ms_swift", ("vllm",) if named else (), "ms-swift")]
    words = " ".join(out.split())
    assert "accuracy (ms_swift): only a trial can load it" in words
    assert ("vllm: found" in words) is named


BROKEN = (
    "grpo.yaml, line 1: TRL's GRPO script has no key max_lenght; remove it.",
    "grpo.yaml, line 2: num_train_epochs: expected a number, got many.",
    "grpo.yaml, line 8: 4 is not divisible by num_generations 8; nearest legal: num_generations 4.",
)


@pytest.mark.parametrize(
    ("found", "code", "verdict", "sentences"),
    [
        (Faults(BROKEN), 2, "problem", BROKEN),
        (Faults(BROKEN[:1], "names no dataset"), 2, "problem", BROKEN[:1]),
        (Faults((), "grpo.yaml names no dataset"), 0, "warning", ("grpo.yaml names no dataset",)),
        (Faults(), 0, "ok", ("grpo.yaml: read, and legal on a CPU",)),
    ],
)
def test_every_fault_of_a_configuration_is_a_finding(
    autotune: Run,
    wiring: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Faults,
    code: int,
    verdict: str,
    sentences: tuple[str, ...],
) -> None:
    asked: list[Any] = []
    wiring.config_faults = lambda *arguments: asked.append(arguments) or found
    wiring.check_rewards = lambda *_: Result(True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo.yaml").write_text("reward_funcs: [accuracy_reward]\n")
    ended, out, _ = autotune("doctor", "--config", "grpo.yaml", "--gpus", "0", "--rollout-gpus", "2", "--json")
    findings = [each for each in json.loads(out)["findings"] if each["name"] == "config"]
    assert ended == code
    assert [(each["verdict"], each["detail"]) for each in findings] == [(verdict, sentence) for sentence in sentences]
    ((request, machine),) = asked
    assert (request.config_name, request.baseline["rollout_gpus"], machine.gpus) == ("grpo.yaml", 2, 0)


def test_a_configuration_that_cannot_be_read_is_told_with_what_else_is_wrong(
    autotune: Run, wiring: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rewards are not known then, and not asked for."""
    wiring.config_faults = lambda *_: Faults(BROKEN)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo.yaml").write_text("reward_funcs: [accuracy_reward\nbf16: true\n")
    code, out, _ = autotune("doctor", "--config", "grpo.yaml")
    assert code == 2
    assert all(" ".join(sentence.split()) in " ".join(out.split()) for sentence in BROKEN)
    wiring.probe = lambda *_: {"python": "3.11.7", "packages": {}}
    assert autotune("doctor", "--config", "grpo.yaml")[0] == 5, "no study can run here, whatever the configuration"


def test_an_interpreter_that_cannot_be_asked_leaves_the_configuration_unchecked(
    autotune: Run, wiring: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring.config_faults = Mock(side_effect=MachineError("the training environment lacks trl"))
    wiring.check_rewards = lambda *_: Result(True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo.yaml").write_text("bf16: true\n")
    code, out, _ = autotune("doctor", "--config", "grpo.yaml")
    assert code == 5
    assert "grpo.yaml cannot be checked: the training environment lacks trl" in " ".join(out.split())
