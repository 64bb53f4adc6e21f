"""Files a configuration names: read where TRL would read them, or one sentence that says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.specification.build import model_digest
from autotune.specification.resolve import read_files
from search_spaces.yaml_text import MAX_BYTES
from tests.support import factories


def test_a_named_file_is_looked_up_from_the_folder_the_command_runs_in(tmp_path: Path) -> None:
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds" / "zero3.json").write_text("{}")
    elsewhere = tmp_path / "whole.json"
    elsewhere.write_text("[1]")
    named = {"deepspeed": ("ds/zero3.json", 4), "fsdp_config": (str(elsewhere), 9)}
    assert read_files(named, "grpo.yaml", tmp_path) == {"deepspeed": "{}", "fsdp_config": "[1]"}


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("missing.json", "No such file"),
        ("folder", "Is a directory"),
        ("binary", "UTF-8"),
        ("a\0b", "UTF-8"),
        ("vast", "larger"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_line(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "vast").write_text(" " * (MAX_BYTES + 1))
    with pytest.raises(UsageError, match=why) as caught:
        read_files({"deepspeed": (path, 3)}, "grpo.yaml", tmp_path)
    assert str(caught.value).startswith("grpo.yaml, line 3: deepspeed: ")
    assert len(str(caught.value).splitlines()) == 1


def test_another_checkpoint_of_one_architecture_is_another_model(tmp_path: Path) -> None:
    """Its files have the same names and sizes, always."""
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    whole = bytes(range(256)) * 40_000
    weights.write_bytes(whole)
    before = model_digest(tmp_path)
    assert model_digest(tmp_path) == before
    for at in (0, len(whole) - 1000, len(whole) // 2):
        weights.write_bytes(whole[:at] + b"other" + whole[at + 5 :])
        assert weights.stat().st_size == len(whole)
        assert model_digest(tmp_path) != before, at
    weights.write_bytes(whole)
    assert model_digest(tmp_path) == before


def test_a_later_reading_of_the_same_model_continues_the_study() -> None:
    spec = factories.study_spec()
    known = replace(spec.resources, model=replace(spec.resources.model, head_size=64))
    assert replace(spec, resources=known).digest == spec.digest
    other = replace(spec, workload=replace(spec.workload, model_sha256="0" * 64))
    assert other.digest != spec.digest
