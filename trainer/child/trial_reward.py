"""Call a reward on a few made-up completions before any trial spends minutes on one it cannot score."""

from __future__ import annotations

import asyncio
import inspect
import math
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence

from .failures import RewardFailedError, describe
from .rewards import Reward

TEXTS = ("I think the answer is 7. <answer>7</answer>", "")
"""An ordinary completion, and the empty one a model gives when it ends at once."""


def check_reward(reward: Reward, rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> List[float]:
    """The rewards of ``TEXTS`` for every row, called as TRL calls it.

    Raises:
        RewardFailedError: it raised, or did not return one finite number for each completion.
    """
    name = getattr(reward, "__name__", type(reward).__name__)
    arguments = call_arguments(rows, tokenizer)
    try:
        answer = reward(**arguments)
        if inspect.isawaitable(answer):
            answer = asyncio.run(awaited(answer))
    except Exception as error:
        raise RewardFailedError("the reward function %s raised %s" % (name, describe(error))) from error
    return as_numbers(answer, len(arguments["completions"]), name)


async def awaited(answer: Any) -> Any:
    """An awaitable as the coroutine ``asyncio.run`` asks for."""
    return await answer


def call_arguments(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Dict[str, Any]:
    """Keyword arguments of one call: each row once for each of ``TEXTS``, its columns repeated."""
    repeated = [row for row in rows for _ in TEXTS]
    texts = [text for _ in rows for text in TEXTS]
    columns = {key: [row[key] for row in repeated] for key in rows[0] if key != "prompt"}
    completions: List[Any] = [
        text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]
        for row, text in zip(repeated, texts, strict=True)
    ]
    return {
        **columns,
        "prompts": [row["prompt"] for row in repeated],
        "completions": completions,
        "completion_ids": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts],
        "trainer_state": SimpleNamespace(global_step=0, max_steps=1, epoch=0.0),
        "log_extra": ignore,
        "log_metric": ignore,
    }


def ignore(*_: Any, **__: Any) -> None:
    """Stands for TRL's logging callbacks."""


def as_numbers(answer: Any, expected: int, name: str) -> List[float]:
    """``answer`` as ``expected`` finite numbers. Raises ``RewardFailedError`` saying what it is instead."""
    if isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__"):
        raise RewardFailedError(
            "the reward function %s returned a %s; it must return a list with one number for each completion"
            % (name, type(answer).__name__)
        )
    values = list(answer)
    if len(values) != expected:
        raise RewardFailedError(
            "the reward function %s returned %d rewards for %d completions" % (name, len(values), expected)
        )
    numbers = []
    for index, value in enumerate(values):
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise RewardFailedError(
                "the reward function %s returned %r for completion %d, which is no number" % (name, value, index)
            ) from None
        if not math.isfinite(number):
            raise RewardFailedError(
                "the reward function %s returned %s for completion %d; rewards must be finite" % (name, number, index)
            )
        numbers.append(number)
    return numbers
