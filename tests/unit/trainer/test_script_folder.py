"""Files that a script finds by its own folder, or by a folder it goes to, are looked for where the script does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.frameworks import Source, framework_named
from autotune.specification.resolve import read_files
from tests.support import trl_fields
from tests.support.exports import export_request
from tests.support.imports import of
from tests.support.swift_fields import FIELDS
from trainer.frameworks import ms_swift
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.common.shell import commands
from trainer.frameworks.verl.import_config import import_config

ZERO = json.dumps({"zero_optimization": {"stage": 2}})
SWIFT = "swift rlhf --rlhf_type grpo --model m --reward_funcs accuracy --dataset d --deepspeed {file}\n"
TRL = "accelerate launch grpo.py --model_name_or_path m --num_generations 4 --deepspeed {file}\n"
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 custom_reward_function.path={file}\n"
)


def read(name: str, text: str, config: str) -> Imported:
    """As ``start`` reads it."""
    framework, source = framework_named(name), Source(text, config)
    files = read_files(framework.named_files(source), config, Path.cwd())
    fields = {"ms_swift": FIELDS, "trl": trl_fields.FIELDS}.get(name) or framework.fields_of({})
    return framework.import_config(source, fields, 1, files)


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One is in ``work``; the script is in ``work/scripts``, its DeepSpeed file beside it."""
    (tmp_path / "work/scripts/conf").mkdir(parents=True)
    (tmp_path / "work/scripts/conf/zero2.json").write_text(ZERO)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize("here", of("a_file_beside_the_script_is_found"))
@pytest.mark.parametrize(("name", "run"), [("ms_swift", SWIFT), ("trl", TRL)])
def test_a_file_beside_the_script_is_found(name: str, run: str, here: str, folders: Path) -> None:
    text = f"#!/bin/bash\n{here}\n{run.format(file='$here/conf/zero2.json')}"
    assert read(name, text, "scripts/run.sh").knobs["zero_stage"] == 2
    assert read(name, text, str(folders / "scripts/run.sh")).knobs["zero_stage"] == 2


@pytest.mark.parametrize(("name", "run"), [("ms_swift", SWIFT), ("trl", TRL)])
@pytest.mark.parametrize(("before", "file", "place"), of("a_script_that_goes_elsewhere_is_followed_and_says_so"))
def test_a_script_that_goes_elsewhere_is_followed_and_says_so(
    name: str, run: str, before: str, file: str, place: str, folders: Path
) -> None:
    found = read(name, before + run.format(file=file), "scripts/run.sh")
    assert found.knobs["zero_stage"] == 2
    said = (
        f"scripts/run.sh: cd: the script trains in {place.format(work=folders)}; paths of a trial begin in the folder"
    )
    assert [note for note in found.notes if note.startswith(said)]


@pytest.mark.parametrize(
    "before", ["", "cd .\n", "(cd scripts; make)\n", "cd scripts\ncd ..\n", "cd $(dirname $0)/..\n"]
)
def test_one_that_stays_says_nothing(before: str) -> None:
    for name, run in (("ms_swift", SWIFT), ("trl", TRL), ("verl", VERL)):
        found = read(name, before + run.format(file="scripts/conf/zero2.json"), "scripts/run.sh")
        assert not [note for note in found.notes if ": cd: " in note]


def test_verls_reward_is_the_one_beside_the_script(folders: Path) -> None:
    text = f"cd scripts\n{VERL.format(file='$(dirname $0)/reward.py')}"
    found = read("verl", text, "scripts/run.sh")
    assert found.rewards == (f"{folders}/scripts/reward.py:compute_score",)
    assert any("cd: the script trains in scripts; paths of a trial" in note for note in found.notes)
    assert import_config(text, "x.sh", folder="/else").rewards == ("/else/reward.py:compute_score",)


@pytest.mark.parametrize("written", ["$(dirname $1)", "$(basename $(dirname $0))", "${1%/*}", "$(cd $1 && pwd)"])
def test_another_folder_is_not_the_scripts(written: str) -> None:
    assert commands(f"run {written}", "/scripts/run.sh")[-1].words[1].unknown == written


@pytest.mark.parametrize(
    ("here", "edited"), [("here=$(dirname $0)\n", False), ("here=${0%/*}\n", False), ("here=/home/me/scripts\n", True)]
)
def test_a_copy_of_a_script_that_asks_where_it_is_would_find_nothing(here: str, edited: bool, folders: Path) -> None:
    """So it is not edited, and the whole file that is written has the user's own paths."""
    text = f"#!/bin/bash\n{here}{SWIFT.format(file='zero2')[:-1]} --external_plugins $here/plugin.py\n"
    found = read("ms_swift", text, "scripts/run.sh")
    made = ms_swift.export(
        export_request(
            configuration={"zero_stage": 2},
            rows_per_update=8,
            world_size=2,
            user_config=text,
            folder=str(folders),
            passthrough=found.passthrough,
            own_data=True,
        )
    )
    assert ("$here/plugin.py" in made.files["run.sh"]) is edited
    if not edited:
        assert f"{folders}/scripts/plugin.py" in made.files["grpo.yaml"]
