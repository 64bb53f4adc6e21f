"""A user's own verl run, read: if one of these fails, a study's baseline is not what the user runs."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.key_handling import KeyHandling
from trainer.frameworks.common.shell_tree import ShellError
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_handling import handling_of
from trainer.frameworks.verl.key_tables import FIXED, KEYS, NATIVE
from trainer.frameworks.verl.reading import calls_of


def overrides(*more: str) -> str:
    base = (
        "algorithm.adv_estimator=grpo", "trainer.n_gpus_per_node=2", "data.train_batch_size=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8", "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
    )  # fmt: skip
    return "\n".join((*base, *more))


def read(*more: str) -> Imported:
    return import_config(overrides(*more), "mine.txt")


@pytest.mark.parametrize(("line", "knob", "value"), of("each_word_of_verls"))
def test_each_word_of_verls(line: str, knob: str, value: Any) -> None:
    assert read(line).knobs.get(knob) == value


@pytest.mark.parametrize(("line", "words"), of("what_a_trial_cannot_honour_is_refused_by_its_line"))
def test_what_a_trial_cannot_honour_is_refused_by_its_line(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(line)
    said = str(refused.value)
    assert said.startswith("mine.txt, line ")
    assert int(said.split("line ")[1].split(":", maxsplit=1)[0]) in range(1, 9)
    assert words in said
    assert said.endswith(".")
    assert "\n" not in said


def test_every_key_has_one_fate() -> None:
    assert all(handling_of(key) is KeyHandling.KNOB for key in KEYS)
    assert not KEYS & set(FIXED)
    assert len(set(NATIVE.values())) == len(NATIVE)


@pytest.mark.parametrize(("script", "words"), of("words_of_a_command"))
def test_words_of_a_command(script: str, words: list[str]) -> None:
    (call,) = calls_of(script)
    assert [word.text for word in call.words] == words


def test_what_only_a_shell_knows_is_marked() -> None:
    (call,) = calls_of("A=$(date); B=`pwd`\nmain_ppo a=$A b=$B c=$C d=${D:-$USER/x} e=${E%.txt}")
    assert [word.unknown for word in call.words] == ["", "$(date)", "`pwd`", "$C", "$USER", "${E%.txt}"]


@examples(100, 300)
@given(text=st.text(alphabet="ab =\n\\'\"$(){}[]@#;|&<>`", max_size=40))
def test_any_script_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ShellError):
        for call in calls_of(f"{text}\nmain_ppo x=1"):
            assert any("main_ppo" in word.text for word in call.words)


@examples(100, 300)
@given(text=st.text(max_size=60) | st.text(alphabet="abc.=+-{}[]:, \n'\"#$", max_size=60))
def test_any_file_is_refused_in_one_sentence_unless_it_says_grpo(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_config(text, "mine")
    assert str(refused.value).startswith("mine")
    assert "\n" not in str(refused.value)
