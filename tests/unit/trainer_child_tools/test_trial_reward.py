"""A reward that cannot be scored with is refused before any trial, in a sentence."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child import prepare
from trainer.child.contract import RewardSpec
from trainer.child.failures import RewardFailedError
from trainer.child.prepare import call_arguments, check_reward, check_rewards, cost_of
from trainer.child.reward_files import working_in
from trainer.child.rewards import as_numbers, as_reward_error, guarded, load_reward

ROWS = [{"prompt": "1 + 1 =", "target": 2}, {"prompt": "1 + 2 =", "target": 3}]


def tokenize(text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
    return {"input_ids": list(text.encode())}


def check(reward: Callable[..., Any], rows: list[dict[str, Any]]) -> list[float | None]:
    return check_reward(reward, call_arguments(rows, tokenize))


def test_called_as_trl_calls_it_with_empty_completions_among_them() -> None:
    seen: dict[str, Any] = {}

    def reward(prompts: list[str], completions: list[str], target: list[int], **rest: Any) -> list[float]:
        seen.update(rest, prompts=prompts, completions=completions, target=target)
        rest["log_metric"]("accuracy", 1.0)
        rest["log_extra"]("note", ["a"])
        return [float(t) for t in target]

    assert check(reward, ROWS) == [2.0, 2.0, 3.0, 3.0]
    assert seen["prompts"] == ["1 + 1 ="] * 2 + ["1 + 2 ="] * 2
    assert "" in seen["completions"]
    assert [len(ids) for ids in seen["completion_ids"]] == [len(c) for c in seen["completions"]]
    assert seen["trainer_state"].global_step == 0


def test_conversational_rows_get_conversational_completions() -> None:
    rows = [{"prompt": [{"role": "user", "content": "hi"}]}]
    assert check(lambda completions, **_: [len(c[-1]["content"]) for c in completions], rows)[1] == 0


def test_async_reward_is_awaited() -> None:
    async def reward(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    assert check(reward, ROWS) == [1.0] * 4


def raising(**_: Any) -> list[float]:
    raise KeyError("solution")


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (raising, "raised KeyError: 'solution'"),
        (lambda completions: [1.0] * len(completions), "raised TypeError"),
        (lambda **_: None, "returned None; it must return a list"),
        (lambda **_: 1.0, "returned a float"),
        (lambda **_: "1111", "returned a str"),
        (lambda **_: {"a": 1}, "returned a dict"),
        (lambda **_: [], "returned 0 rewards for 4 completions"),
        (lambda **_: [1.0] * 5, "returned 5 rewards for 4 completions"),
        (lambda **_: [1.0, float("nan"), 0, 0], "returned nan for completion 1"),
        (lambda **_: [float("-inf"), 0, 0, 0], "returned -inf for completion 0"),
        (lambda **_: [[1.0], 0, 0, 0], "which is no number"),
    ],
)
def test_what_is_wrong_is_said(reward: Callable[..., Any], expected: str) -> None:
    with pytest.raises(RewardFailedError) as caught:
        check(reward, ROWS)
    assert expected in str(caught.value)
    assert "the reward function" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_none_for_single_rows_is_trls_way_of_saying_not_scorable() -> None:
    def some(completions: list[str], **_: Any) -> list[float | None]:
        return [1.0, None] * (len(completions) // 2)

    def nothing(completions: list[str], **_: Any) -> list[float | None]:
        return [None] * len(completions)

    assert check(some, ROWS) == [1.0, None, 1.0, None]
    check_rewards([some, nothing], ROWS, tokenize)
    with pytest.raises(RewardFailedError, match="nothing returned None for all 4 completions"):
        check_rewards([nothing], ROWS, tokenize)


def test_a_reward_is_timed_as_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []

    def slow(completions: list[str], **_: Any) -> list[float]:
        calls.append(len(completions))
        now[0] += 2.0 + 0.25 * len(completions)
        return [1.0] * len(completions)

    monkeypatch.setattr(prepare.time, "perf_counter", lambda: now[0])
    assert check_rewards([slow], 4 * ROWS, tokenize) == (2.0, 0.25)
    assert calls == [2, 14], "each completion is scored once"
    assert check_rewards([slow, slow], 4 * ROWS, tokenize) == (4.0, 0.5)
    assert check_rewards([slow], ROWS[:1], tokenize) == (2.5, 0.0)


@pytest.mark.parametrize(
    ("calls", "cost"),
    [
        ((2, 5.0, 14, 0.5), (0.5, 0.0)),
        ((2, 2.0, 14, 2.0), (2.0, 0.0)),
        ((2, 0.0, 14, 1.4), (0.0, 0.1167)),
        ((2, 1.0, 2, 1.5), (1.5, 0.0)),
    ],
    ids=["what only the first call did", "a call", "a completion", "two calls alike"],
)
def test_what_a_reward_costs(calls: tuple[int, float, int, float], cost: tuple[float, float]) -> None:
    assert cost_of(*calls) == pytest.approx(cost, abs=1e-4)


FINITE = st.one_of(st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.none() | FINITE))
def test_every_list_of_finite_numbers_is_accepted(values: list[Any]) -> None:
    expected = [None if v is None else float(v) for v in values]
    assert as_numbers(values, "f", values) == expected
    assert as_numbers(tuple(values), "f", values) == expected
    assert as_numbers(iter(values), "f") == expected


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_that_no_float_can_hold_is_refused_in_a_sentence(digits: int, sign: int) -> None:
    value = sign * 10**digits
    with pytest.raises(RewardFailedError, match="too large for completion 0; rewards must be finite"):
        as_numbers([value], "score")


@pytest.mark.parametrize("answer", [["1.0"], [b"1"], [float("nan")], [float("inf")], [{}], [1.0, 1.0], "1", None])
def test_a_trial_refuses_of_a_reward_what_the_try_refuses(answer: object) -> None:
    """The frameworks take numerals in text for no numbers, and a reward's NaN says nothing of precision."""

    def score(completions: list[str], **_: Any) -> object:
        return answer

    async def score_async(completions: list[str], **_: Any) -> object:
        return answer

    with pytest.raises(RewardFailedError, match="the reward function score returned") as tried:
        check_reward(score, {"completions": ["a"]})
    with pytest.raises(RewardFailedError) as ran:
        guarded(score)(completions=["a"])
    assert str(ran.value) == str(tried.value)
    with pytest.raises(RewardFailedError, match="the reward function score_async returned"):
        asyncio.run(guarded(score_async)(completions=["a"]))


@pytest.mark.parametrize("kind", ["file", "import"])
def test_relative_files_of_a_reward_are_found_where_the_user_stands(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, scratch = tmp_path / "user", tmp_path / "scratch"
    user.mkdir()
    scratch.mkdir()
    module = f"scores_of_{kind}"
    (user / "table.json").write_text("[3.0]")
    (user / f"{module}.py").write_text(
        "import json\nTABLE = json.load(open('table.json'))\n"
        "def score(completions, **_):\n    return [json.load(open('table.json'))[0] for _ in completions]\n"
        "async def score_async(completions, **_):\n    return score(completions)\n"
    )
    monkeypatch.chdir(scratch)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("score", "score_async"):
        named, path = (name, user / f"{module}.py") if kind == "file" else (f"{module}.{name}", user)
        reward = load_reward(RewardSpec(kind, named, str(path), folder=str(user)))
        assert check_reward(reward, {"completions": ["a", "b"]}) == [3.0, 3.0]
        assert Path.cwd() == scratch


def test_calls_of_rewards_that_overlap_come_back_to_where_the_first_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user").mkdir()

    async def slow(seconds: float) -> None:
        with working_in(str(tmp_path / "user")):
            await asyncio.sleep(seconds)
            assert Path.cwd() == tmp_path / "user"

    async def both() -> None:
        await asyncio.gather(slow(0.02), slow(0.0))

    asyncio.run(both())
    assert Path.cwd() == tmp_path
    with working_in(str(tmp_path / "gone")):
        assert Path.cwd() == tmp_path


def test_a_variable_that_a_trial_does_not_have_is_told_with_the_option_that_passes_it_on(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text(
        "import os\ndef score(completions, key='', **_):\n    return [float(os.environ['NO_SUCH_JUDGE_URL'])]\n"
        "def plain(completions, **_):\n    return {}['A_COLUMN']\n"
    )
    reward = load_reward(RewardSpec("file", "score", str(path)))
    with pytest.raises(RewardFailedError, match=r"NO_SUCH_JUDGE_URL.*pass it on with --env NO_SUCH_JUDGE_URL$"):
        check_reward(reward, {"completions": ["a"]})
    with pytest.raises(RewardFailedError, match=r"--env NO_SUCH_JUDGE_URL$"):
        guarded(reward)(completions=["a"])
    with pytest.raises(RewardFailedError, match=r"KeyError: 'A_COLUMN' \(judge.py, line 5\)$"):
        check_reward(load_reward(RewardSpec("file", "plain", str(path))), {"completions": ["a"]})
    path.write_text("import os\nURL = os.environ['NO_SUCH_JUDGE_URL']\ndef score(**_): pass\n")
    with pytest.raises(RewardFailedError, match=r"cannot be loaded.*--env NO_SUCH_JUDGE_URL$"):
        load_reward(RewardSpec("file", "score", str(path)))


def test_an_error_of_a_reward_is_told_with_its_line_or_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "r.py"
    path.write_text(
        "class Silent(Exception):\n    def __str__(self):\n        raise RuntimeError('no text')\n"
        "def silent(completions, **_):\n    raise Silent\ndef bare(completions): return [1.0]\n"
        "async def late(completions, **_):\n    return [1 / 0]\n"
    )
    late, bare = r"ZeroDivisionError: division by zero \(r.py, line 8\)$", r"'answer'; .* with \*\*kwargs$"
    for name, said in {"silent": r"raised Silent \(r.py, line 5\)$", "late": late, "bare": bare}.items():
        with pytest.raises(RewardFailedError, match=said):
            check_reward(load_reward(RewardSpec("file", name, str(path))), {"completions": ["a"], "answer": ["b"]})


@pytest.mark.parametrize("code", [0, 3, "done"])
def test_a_reward_that_leaves_the_interpreter_has_failed(code: object) -> None:
    def reward(**_: Any) -> list[float]:
        raise SystemExit(code)

    with pytest.raises(RewardFailedError, match="raised SystemExit"):
        check(reward, ROWS)


def test_what_a_reward_raises_is_told_from_what_the_framework_does() -> None:
    assert isinstance(as_reward_error(SystemExit(3)), RewardFailedError)
    assert isinstance(as_reward_error(ValueError("x")), RewardFailedError)
    own, full = RewardFailedError("own"), MemoryError()
    assert as_reward_error(own) is own
    assert as_reward_error(full) is full
