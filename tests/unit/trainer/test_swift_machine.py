"""A user's own ms-swift run on the machine it was measured on: its shell, its processes, its GPUs."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from search_spaces.configuration import Configuration
from tests.support.exports import export_request
from tests.support.imports import of
from tests.support.swift_fields import FIELDS
from trainer.child.contract import RewardSpec
from trainer.frameworks import ms_swift
from trainer.frameworks.ms_swift.import_config import import_config

OF_ONE: dict[str, Any] = {
    "configuration": Configuration({"micro_batch_size": 4}),
    "model": "one",
    "rewards": (RewardSpec("ms_swift", "x"),),
    "own_data": True,
}
LINE = "swift rlhf --rlhf_type grpo --model one --reward_funcs x --dataset d"


def exported(script: str, **changes: Any) -> str:
    """``run.sh`` of a study of ``script``."""
    before = import_config(script, "run.sh", FIELDS)
    asked = export_request(**OF_ONE, user_config=script, passthrough=before.passthrough)
    return ms_swift.export(replace(asked, **changes)).files["run.sh"]


def environment_of(folder: Path, script: str, shell: str, **changes: Any) -> dict[str, str]:
    """What a ``swift`` that only writes down its variables was started with, the script begun by ``shell``."""
    place = folder / "bin"
    place.mkdir()
    (place / "swift").write_text(f"#!/bin/sh\nenv > '{folder}/told'\n")
    (place / "swift").chmod(0o755)
    (folder / "run.sh").write_text(exported(script, python=str(place / "python"), folder=str(folder), **changes))
    run = subprocess.run(
        [shell, str(folder / "run.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)},
    )
    assert run.returncode == 0, run.stderr
    return dict(line.split("=", 1) for line in (folder / "told").read_text().splitlines() if "=" in line)


@pytest.mark.parametrize("head", ["#!/bin/bash\n", "#!/usr/bin/env bash\n", ""])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_script_for_bash_is_run_by_bash(tmp_path: Path, head: str, shell: str) -> None:
    """Exports are started by ``sh``, which on Debian and Ubuntu is a shell without arrays."""
    script = f"{head}set -euo pipefail\nnames=(a b)\nexport LAST=${{names[-1]}}\n{LINE} 2>&1 | cat\n"
    assert environment_of(tmp_path, script, shell)["LAST"] == "b"


@pytest.mark.parametrize("head", ["#!/bin/sh", "#! /usr/bin/env sh", "#!/usr/bin/dash -e", "#!/bin/busybox sh"])
def test_a_script_for_sh_needs_no_bash(head: str) -> None:
    assert "bash" not in exported(f"{head}\n{LINE}\n")
    assert exported(f"{head}\n{LINE}\n").startswith(f"{head}\n")


@pytest.mark.parametrize(("variables", "processes", "gpus", "count"), of("as_many_processes_as_gpus_are_seen"))
def test_as_many_processes_as_gpus_are_seen(
    tmp_path: Path, variables: str, processes: int, gpus: str | None, count: str | None
) -> None:
    """ms-swift refuses vLLM where it sees a GPU that has no process (S9)."""
    found = environment_of(tmp_path, f"#!/bin/sh\n{variables} {LINE}\n", "sh", world_size=processes)
    assert found.get("CUDA_VISIBLE_DEVICES") == gpus
    assert found.get("NPROC_PER_NODE") == count


def test_a_run_for_several_machines_waits_for_no_other(tmp_path: Path) -> None:
    variables = "NNODES=2 NODE_RANK=0 NPROC_PER_NODE=8"
    found = environment_of(tmp_path, f"#!/bin/sh\n{variables} {LINE}\n", "sh", world_size=8)
    assert (found["NNODES"], found["NPROC_PER_NODE"]) == ("1", "8")


def test_the_same_holds_for_variables_in_a_file() -> None:
    own = (
        "rlhf_type: grpo\nmodel: one\nreward_funcs: [x]\ndataset: d\n"
        "ENV:\n  NPROC_PER_NODE: 8  # the whole machine\n  CUDA_VISIBLE_DEVICES: 0,1,2,3,4,5,6,7\n  MINE: 1\n"
    )
    before = import_config(own, "grpo.yaml", FIELDS)
    wanted = export_request(**OF_ONE, user_config=own, passthrough=before.passthrough)
    found = yaml.safe_load(ms_swift.export(wanted).files["grpo.yaml"])["ENV"]
    assert {name: str(value) for name, value in found.items()} == {
        "NPROC_PER_NODE": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "MINE": "1",
    }
    whole = ms_swift.export(replace(wanted, world_size=8)).files["grpo.yaml"]
    assert "NPROC_PER_NODE: 8  # the whole machine" in whole
