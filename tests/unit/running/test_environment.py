from __future__ import annotations

import os

import pytest

from autotune.errors import UsageError
from autotune.running.launch import child_environment, let_through, passed_on
from tests.support.imports import of
from trainer.child.contract import TAG_VARIABLE


@pytest.mark.parametrize("name", of("what_moves_the_numbers_is_passed_on"))
def test_what_moves_the_numbers_is_passed_on(name: str) -> None:
    assert child_environment({name: "value"}, "tag")[name] == "value"


@pytest.mark.parametrize("name", of("secrets_and_our_own_path_are_not"))
def test_secrets_and_our_own_path_are_not(name: str) -> None:
    assert name not in child_environment({name: "value"}, "tag")


def test_a_variable_that_the_user_names_is_passed_on_secret_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "k")
    monkeypatch.setenv("AUTOTUNE_ENV", "")
    assert "JUDGE_API_KEY" not in child_environment(os.environ, "t")
    let_through(["JUDGE_API_KEY"])
    let_through(["JUDGE_API_KEY"])
    assert child_environment(os.environ, "t")["JUDGE_API_KEY"] == "k"
    assert passed_on(os.environ)["JUDGE_API_KEY"] == "k", "on other machines too"
    assert child_environment(passed_on(os.environ), "t")["JUDGE_API_KEY"] == "k"
    with pytest.raises(UsageError, match="--env NO_SUCH: there is no such variable"):
        let_through(["NO_SUCH"])


def test_the_tag_is_ours_even_inside_another_trial_and_no_renaming_engine_overwrites_it() -> None:
    made = child_environment({TAG_VARIABLE: "theirs", "SPT_NOENV": ""}, "ours")
    assert (made[TAG_VARIABLE], made["SPT_NOENV"]) == ("ours", "1")
