"""Words of the command line: what they mean, and the sentence for those that mean nothing."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.specification.user_input import (
    data_named,
    is_folder,
    model_named,
    rewards_configured,
    rewards_named,
    task_named,
)
from trainer.child.failures import RewardFailedError
from trainer.child.rewards import load_reward


def test_a_folder_goes_before_a_hub_id_of_the_same_name(tmp_path: Path) -> None:
    assert model_named("org/name", tmp_path) == "org/name"
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert model_named("org/name", tmp_path) == str(tmp_path / "org" / "name")
    assert is_folder(model_named("./org/../org/name", tmp_path))
    assert not is_folder("org/name")


@pytest.mark.parametrize("word", ["nothing", "./a/b", "../x", "/nowhere/model", "a/b/c", "~/no/such", "org/na me"])
def test_what_is_neither_folder_nor_hub_id_is_named(tmp_path: Path, word: str) -> None:
    with pytest.raises(UsageError, match=r"there is no model folder .* is no hub id such as org/name"):
        model_named(word, tmp_path)


@pytest.mark.parametrize(("word", "name"), [("chain_sum", "chain_sum"), ("reasoning-gym:gsm_symbolic", "gsm_symbolic")])
def test_tasks(word: str, name: str) -> None:
    assert task_named(word) == name


@pytest.mark.parametrize("word", ["", "gym:chain_sum", "reasoning-gym:", "reasoning-gym:a b", "a/b", ":x"])
def test_words_that_are_no_task(word: str) -> None:
    with pytest.raises(UsageError, match="expected reasoning-gym:NAME"):
        task_named(word)


def test_a_reward_file_is_known_by_its_text_too(tmp_path: Path) -> None:
    (tmp_path / "my reward.py").write_text("def score(**_): ...\n")
    first = rewards_named(["my reward.py:score", "math-verify"], tmp_path)
    assert [(r.kind, r.name) for r in first] == [("file", "score"), ("math_verify", "math-verify")]
    assert first[0].path == str(tmp_path / "my reward.py")
    (tmp_path / "my reward.py").write_text("def score(**_): return []\n")
    assert rewards_named(["my reward.py:score", "math-verify"], tmp_path) != first


@pytest.mark.parametrize("word", ["r.py", "r.py:", "r.py:a-b", ":f", "math_verify", "r.py:f:", "r.py:1f"])
def test_words_that_are_no_reward(tmp_path: Path, word: str) -> None:
    (tmp_path / "r.py").touch()
    with pytest.raises(UsageError, match=r"expected FILE\.py:FUNCTION or math-verify|there is no file"):
        rewards_named([word], tmp_path)


def test_a_missing_or_repeated_reward_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file \S+$"):
        rewards_named(["gone.py:f"], tmp_path)
    with pytest.raises(UsageError, match="a folder, pipe or device has this name"):
        rewards_named([".:f"], tmp_path)
    with pytest.raises(UsageError, match="twice"):
        rewards_named(["math-verify", "math-verify"], tmp_path)


def test_rewards_of_a_config_are_names_or_dotted_paths(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rewards.py").write_text("x = 1\n")
    names = ("accuracy_reward", "lib.rewards.score", "elsewhere.score")
    trl, own, installed = rewards_configured(names, tmp_path)
    assert trl == RewardSpec("trl", "accuracy_reward")
    assert (own.kind, own.name, own.path) == ("import", "lib.rewards.score", str(tmp_path))
    assert len(own.sha256) == 64
    assert installed.sha256 == ""


def test_a_reward_that_a_plugin_may_register_says_where_plugins_are_looked_up(tmp_path: Path) -> None:
    assert rewards_configured(["accuracy"], tmp_path, "ms_swift") == (
        RewardSpec("ms_swift", "accuracy", str(tmp_path)),
    )


def test_open_r1s_own_rewards_are_looked_up_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are tried before any trial, in a process that no launch of Open-R1 has told where it is."""
    package = tmp_path / "src" / "open_r1"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "configs.py").write_text(
        "class GRPOScriptArguments:\n    def __init__(self, dataset_name, reward_funcs):\n"
        "        self.names = reward_funcs\n"
    )
    (package / "rewards.py").write_text(
        "def tag_count(completions, **_):\n    return [float(len(c[0]['content'])) for c in completions]\n"
        "def get_reward_funcs(arguments):\n    return [{'tag_count': tag_count}[name] for name in arguments.names]\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    (own,) = rewards_configured(["tag_count"], tmp_path, "open_r1", str(tmp_path))
    assert load_reward(own)(completions=["abc"]) == [3.0]
    (strange,) = rewards_configured(["none"], tmp_path, "open_r1", str(tmp_path))
    with pytest.raises(RewardFailedError, match="registry has no reward 'none'"):
        load_reward(strange)
    for name in [name for name in sys.modules if name.split(".")[0] == "open_r1"]:
        del sys.modules[name]
    with pytest.raises(RewardFailedError, match="with --openr1"):
        load_reward(replace(own, folder=""))


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no file {tmp_path}"):
        data_named("prompts.jsonl", tmp_path)
    with pytest.raises(UsageError, match="there is no file"):
        data_named(".", tmp_path)


@given(st.text(max_size=60).filter(lambda word: "\0" not in word))
def test_any_word_is_a_model_or_a_usage_error(word: str) -> None:
    """No traceback for anything that can be typed."""
    with suppress(UsageError):
        found = model_named(word, Path("/"))
        assert os.path.exists(found) or found.count("/") == 1
