from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.imports import of
from trainer.child import start
from trainer.child.contract import Protocol, Result, RewardSpec, TrialSpec
from trainer.frameworks.trl import render, settings, unsupported


def spec(
    configuration: dict[str, bool | int | float | str], rows: int = 16, world: int = 1, **changes: Any
) -> TrialSpec:
    return render(
        trial="1/2",
        configuration=configuration,
        model="m",
        prompts="p.jsonl",
        rewards=(RewardSpec("file", "reward", "r.py"),),
        rows_per_update=rows,
        max_prompt_length=8,
        max_completion_length=16,
        protocol=Protocol(lengths=(1, 2)),
        world_size=world,
        **{"passthrough": {"beta": 0.1}, **changes},
    )


def test_accumulation_follows_from_rows_micro_batch_and_ranks() -> None:
    assert spec({"micro_batch_size": 4}).settings["gradient_accumulation_steps"] == 4
    assert spec({"micro_batch_size": 4}, rows=64, world=8).settings["gradient_accumulation_steps"] == 2
    given = spec({"micro_batch_size": 4, "gradient_accumulation_steps": 3}).settings
    assert given["gradient_accumulation_steps"] == 3


@pytest.mark.parametrize(
    ("precision", "master", "training", "model"),
    [
        ("fp32", "fp32", {"bf16": False, "fp16": False}, {"dtype": "float32"}),
        ("bf16", "fp32", {"bf16": True, "fp16": False}, {"dtype": "float32"}),
        ("bf16", "bf16", {"bf16": True, "fp16": False}, {"dtype": "bfloat16"}),
        ("fp16", "fp32", {"bf16": False, "fp16": True}, {"dtype": "float32"}),
    ],
)
def test_precision_and_master_weights(
    precision: str, master: str, training: dict[str, bool], model: dict[str, str]
) -> None:
    assert settings({"precision": precision, "master_weights": master}, 16, 1)[:2] == (training, model)


def test_what_is_not_set_is_left_to_the_user_and_the_framework() -> None:
    assert settings({}, 16, 1) == ({}, {}, {})


def test_seams_go_their_own_way() -> None:
    training, _, seams = settings({"logprob_rows": 2, "logprob_vocab_chunk": 1024}, 16, 1)
    assert seams == {"logprob_rows": 2, "logprob_vocab_chunk": 1024}
    assert not training


@pytest.mark.parametrize(("configuration", "said"), of("what_a_trial_cannot_set_is_said_and_refused"))
def test_what_a_trial_cannot_set_is_said_and_refused(
    configuration: dict[str, bool | int | float | str], said: str
) -> None:
    assert said in " ".join(unsupported(configuration))
    with pytest.raises(ValueError, match=said):
        spec(configuration)


def test_fp8_is_a_seam_with_bf16_around_it() -> None:
    training, _, seams = settings({"precision": "fp8", "fp8_emulate": True}, 16, 1)
    assert training == {"bf16": True, "fp16": False}
    assert seams == {"precision": "fp8", "fp8_emulate": True}
    assert settings({"precision": "bf16", "fp8_emulate": True}, 16, 1)[2] == {}


def test_what_the_user_says_beside_a_knob_in_the_same_mapping_stays() -> None:
    own = {
        "deepspeed": {"zero_optimization": {"sub_group_size": 7, "reduce_bucket_size": "auto"}, "steps_per_print": 3},
        "gradient_checkpointing_kwargs": {"determinism_check": "none"},
    }
    knobs: dict[str, bool | int | float | str] = {"zero_stage": 2, "checkpointing_reentrant": True}
    training, _, _ = settings(knobs, 16, 2, passthrough=own)
    zero = training["deepspeed"]["zero_optimization"]
    assert (zero["stage"], zero["sub_group_size"], zero["reduce_bucket_size"]) == (2, 7, "auto")
    assert training["deepspeed"]["steps_per_print"] == 3
    assert training["gradient_checkpointing_kwargs"] == {"determinism_check": "none", "use_reentrant": True}
    set_, _, _ = settings({**knobs, "zero_reduce_bucket": 99}, 16, 2, passthrough=own)
    assert set_["deepspeed"]["zero_optimization"]["reduce_bucket_size"] == 99
    assert settings({"zero_stage": 0}, 16, 2, passthrough=own)[0] == {"deepspeed": None}


def test_a_compiler_of_the_users_does_not_turn_compilation_on_where_a_trial_is_without() -> None:
    """TrainingArguments compiles as soon as a backend is named, and the knob would do nothing."""
    own = {"torch_compile_backend": "inductor"}
    assert spec({"torch_compile": True}, passthrough=own).passthrough == own
    assert spec({"torch_compile": False}, passthrough=own).passthrough == {}


def test_a_question_is_tied_to_its_parent_before_it_imports_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    module = SimpleNamespace(end_with_parent=lambda: None, main=lambda _: Result(ok=True))
    monkeypatch.setattr(importlib, "import_module", lambda name: seen.append(name.split(".")[-1]) or module)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert start.main(["probe", "--directory", "folder"]) == 0
    assert seen == ["began", "probe"]


def test_neither_the_script_folder_nor_the_working_directory_stays_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, cwd, kept = tmp_path / "child", tmp_path / "cwd", tmp_path / "lib"
    for folder in (ours, cwd, kept):
        folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(cwd)
    entries = [str(ours), "", ".", str(kept), str(cwd) + os.sep, str(link)]
    monkeypatch.chdir(cwd)
    assert start.clean_path(entries, str(ours), str(cwd)) == [str(kept)]
