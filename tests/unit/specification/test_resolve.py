"""Files a configuration names: read where TRL would read them, or one sentence that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.specification.resolve import read_files
from search_spaces.yaml_text import MAX_BYTES


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
