"""A user's own ``swift rlhf`` is understood, and what is wrong with it is told with its line."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.shell import Command, commands
from trainer.frameworks.common.shell_tree import ShellError
from trainer.frameworks.ms_swift.import_config import import_config, named_files, read_keys


def test_a_named_file_is_read_by_the_caller() -> None:
    text = "swift rlhf --rlhf_type grpo --model m \\\n --deepspeed ds.json"
    assert named_files(text, "run.sh") == {"deepspeed": ("ds.json", 2)}
    config = json.dumps({"zero_optimization": {"stage": 1, "round_robin_gradients": True}})
    found = import_config(text, "run.sh", FIELDS, files={"deepspeed": config})
    assert found.knobs["zero_stage"] == 1
    assert found.passthrough["deepspeed"] == {"zero_optimization": {"round_robin_gradients": True}}
    with pytest.raises(ConfigError, match=r"run\.sh, line 2: deepspeed: expected zero0"):
        import_config(text, "run.sh", FIELDS)
    assert read_keys(text, "run.sh")["model"] == ["m"]


@examples(100, 300)
@given(st.text(st.sampled_from("ab ='\"\\\n$(){}`#;&|-swift rlhf"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    found: tuple[Command, ...] = ()
    with contextlib.suppress(ShellError):
        found = commands(text)
    for command in found:
        for word in command.words:
            assert 0 <= word.start < word.end <= len(text)


@examples(60, 200)
@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12), min_size=1, max_size=6))
def test_quoted_words_are_read_as_a_shell_reads_them(words: list[str]) -> None:
    import shlex  # noqa: PLC0415

    text = shlex.join(["run", *words])
    assert [word.text for word in commands(text)[0].words] == ["run", *words]


@pytest.mark.parametrize(("launcher", "processes"), of("the_launchers_processes_are_counted"))
def test_the_launchers_processes_are_counted(launcher: str, processes: int) -> None:
    found = import_config(f"{launcher} --rlhf_type grpo --model m", "run.sh", FIELDS)
    assert (found.processes, found.notes) == (processes, ())
