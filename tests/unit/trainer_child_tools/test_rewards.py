"""Loading a reward: the user's file must be found, named, and run without hiding anything of anyone's."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.support.imports import of
from trainer.child.contract import FailureReason, RewardSpec
from trainer.child.failures import classify
from trainer.child.reward_files import RewardLoadError
from trainer.child.rewards import answer_of, completion_text, load_reward


@pytest.fixture(autouse=True)
def _restore_imports() -> Iterator[None]:
    path, modules, finders = list(sys.path), set(sys.modules), list(sys.meta_path)
    yield
    sys.path[:] = path
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        if name.startswith(("_autotune_reward", "my_helper")):
            del sys.modules[name]


def from_file(folder: Path, text: str, name: str = "score", file: str = "my_reward.py") -> Any:
    path = folder / file
    path.write_text(text)
    return load_reward(RewardSpec(kind="file", name=name, path=str(path)))


def test_function_of_a_file_is_called_with_its_columns(tmp_path: Path) -> None:
    reward = from_file(
        tmp_path, "def score(completions, target, **_):\n    return [len(c) - t for c, t in zip(completions, target)]\n"
    )
    assert reward(completions=["abc", "d"], target=[1, 1], prompts=[]) == [2, 0]
    assert reward.__name__ == "score"


def test_neighbour_module_can_be_imported_but_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "my_helper_of_reward.py").write_text("VALUE = 5.0\n")
    (tmp_path / "json.py").write_text("raise SystemExit('the neighbour was taken for the standard library')\n")
    reward = from_file(
        tmp_path,
        "import json, my_helper_of_reward\ndef score(completions, **_):\n"
        "    return [my_helper_of_reward.VALUE + json.loads('1') for _ in completions]\n",
    )
    assert reward(completions=["a"]) == [6.0]
    assert str(tmp_path) in sys.path[-2:]


def test_a_file_in_a_package_imports_the_package_from_the_folder_of_the_start(tmp_path: Path) -> None:
    (tmp_path / "my_helper").mkdir()
    (tmp_path / "my_helper" / "goal.py").write_text("GOAL = 7.0\n")
    file = tmp_path / "my_helper" / "score.py"
    file.write_text("from my_helper.goal import GOAL\ndef score(**_):\n    return [GOAL]\n")
    assert load_reward(RewardSpec("file", "score", path=str(file), folder=str(tmp_path)))() == [7.0]


def test_file_named_like_one_of_ours_does_not_become_it(tmp_path: Path) -> None:
    from_file(tmp_path, "def score(**_):\n    return []\n", file="trainer.py")
    assert sys.modules["trainer"] is trainer
    code = f"import sys; sys.path[:] = {sys.path!r}; import trainer; print(trainer.__file__)"
    assert str(tmp_path) not in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = from_file(tmp_path / "a", "def score(**_):\n    return 'a'\n")
    second = from_file(tmp_path / "b", "def score(**_):\n    return 'b'\n")
    assert (first(), second()) == ("a", "b")


def test_dataclass_in_the_file_works(tmp_path: Path) -> None:
    """Dataclasses with string annotations look their module up in ``sys.modules``."""
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass, KW_ONLY\n"
        "@dataclass\nclass P:\n    _: KW_ONLY\n    x: int = 3\ndef score(**_):\n    return [P().x]\n"
    )
    assert from_file(tmp_path, text)() == [3]


@pytest.mark.parametrize(("text", "expected"), of("what_cannot_be_used_is_said_in_one_sentence"))
def test_what_cannot_be_used_is_said_in_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(RewardLoadError) as caught:
        from_file(tmp_path, text)
    assert expected in str(caught.value)
    assert str(tmp_path / "my_reward.py") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_failed_file_leaves_no_half_module(tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(RewardLoadError):
        from_file(tmp_path, "1 / 0\n")
    assert not {name for name in set(sys.modules) - before if name.startswith("_autotune_reward")}


def test_interrupt_in_the_file_stays_an_interrupt(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        from_file(tmp_path, "raise KeyboardInterrupt\n")


@pytest.mark.parametrize("path", ["", "missing.py", "."])
def test_missing_file_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(RewardLoadError, match="no reward file"):
        load_reward(RewardSpec(kind="file", name="score", path=str(tmp_path / path)))


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(RewardLoadError, match="use one of reasoning_gym, file, import, trl, math_verify"):
        load_reward(RewardSpec(kind="http", name="score"))


def test_load_error_is_a_reward_error_to_the_child() -> None:
    assert classify(RewardLoadError("no"), None).reason is FailureReason.REWARD_ERROR


def test_callable_object_gets_a_name(tmp_path: Path) -> None:
    reward = from_file(
        tmp_path, "class S:\n    def __call__(self, completions, **_):\n        return [1.0]\nscore = S()\n"
    )
    assert reward.__name__ == "score"
    assert reward(completions=["x"]) == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        "async def score(completions, **_):\n    return [2.0]\n",
        "class S:\n    async def __call__(self, completions, **_):\n        return [2.0]\nscore = S()\n",
        "import functools\nasync def f(completions, k, **_):\n    return [k]\nscore = functools.partial(f, k=2.0)\n",
    ],
)
def test_async_reward_stays_async(tmp_path: Path, text: str) -> None:
    """TRL runs rewards it recognises as coroutine functions side by side; a plain wrapper would hide that."""
    reward = from_file(tmp_path, text)
    assert inspect.iscoroutinefunction(reward)
    assert reward.__name__ == "score"
    assert asyncio.run(reward(completions=["x"])) == [2.0]


@pytest.mark.parametrize(("completion", "text"), of("completion_text"))
def test_completion_text(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


@pytest.mark.parametrize(("text", "answer"), of("answer_of"))
def test_answer_of(text: str, answer: str) -> None:
    assert answer_of(text) == answer


class FakeTask:
    def __init__(self, **options: Any) -> None:
        if "wrong" in options:
            raise TypeError("unexpected keyword argument 'wrong'")

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        return float(answer == entry["answer"])


@pytest.fixture
def gym(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("reasoning_gym")
    module.create_dataset = lambda name, **options: FakeTask(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reasoning_gym", module)


@pytest.mark.usefixtures("gym")
def test_reasoning_gym_scores_the_entry_of_each_row() -> None:
    reward = load_reward(RewardSpec(kind="reasoning_gym", name="chain_sum"))
    entries = [json.dumps({"answer": "7"}), {"answer": "8"}]
    completions = [[{"role": "assistant", "content": "<answer>7</answer>"}], "7"]
    assert reward(prompts=[], completions=completions, entry=entries, trainer_state=None) == [1.0, 0.0]
    assert reward.__name__ == "chain_sum"


@pytest.mark.usefixtures("gym")
def test_reasoning_gym_without_its_column_says_so() -> None:
    reward = load_reward(RewardSpec(kind="reasoning_gym", name="chain_sum"))
    with pytest.raises(RewardLoadError, match="no column 'entry'"):
        reward(prompts=["x"], completions=["y"])


@pytest.mark.usefixtures("gym")
def test_refused_options_are_reported() -> None:
    with pytest.raises(RewardLoadError, match="'chain_sum' cannot be made: TypeError"):
        load_reward(RewardSpec(kind="reasoning_gym", name="chain_sum", options={"wrong": 1}))


def test_missing_reasoning_gym_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(RewardLoadError, match="-m pip install reasoning-gym"):
        load_reward(RewardSpec(kind="reasoning_gym", name="chain_sum"))
