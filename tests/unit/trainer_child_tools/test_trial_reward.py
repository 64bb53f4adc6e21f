"""A reward that cannot be scored with is refused before any trial, in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child import trial_reward
from trainer.child.failures import NotFiniteError, RewardFailedError
from trainer.child.scored import as_reward_error, checked
from trainer.child.trial_reward import as_numbers, call_arguments, check_reward, check_rewards, cost_of

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

    monkeypatch.setattr(trial_reward.time, "perf_counter", lambda: now[0])
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
    assert as_numbers(values, len(values), "f") == expected
    assert as_numbers(tuple(values), len(values), "f") == expected


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_whole_number_that_no_float_can_hold_is_refused_in_a_sentence(digits: int, sign: int) -> None:
    value = sign * 10**digits
    with pytest.raises(RewardFailedError, match="too large; rewards must be finite"):
        as_numbers([value], 1, "score")
    with pytest.raises(NotFiniteError, match="row 1 is too large for a float"):
        checked([1.0, value])


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
    assert checked([1, None, 0.5]) == [1, None, 0.5]
    with pytest.raises(RewardFailedError, match="None instead of a list"):
        checked(None)
    with pytest.raises(NotFiniteError, match="row 0 is nan"):
        checked([float("nan")])
