"""Calls the rewards on made-up completions before any trial, so that a broken reward is found in seconds."""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .failures import RewardFailedError, describe
from .reward_files import Reward
from .scored import RAISED, as_numbers, name_of

TEXTS = ("I think the answer is 7. <answer>7</answer>", "")
"""An ordinary completion, and the empty completion of a model that ends at once."""
NOT_COLUMNS = ("prompt", "completion", "completion_ids")
"""Columns of the prompts TRL does not pass on to a reward."""


def check_rewards(rewards: Sequence[Reward], rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Tuple[float, float]:
    """Tests every reward on every row and ``TEXTS`` by calls like TRL's: one for the first row, one for the others.

    Returns the seconds of a call, and of each further completion, summed over the rewards.

    Raises:
        RewardFailedError: a reward raised, or did not return a finite number or ``None`` for each completion; or no
            reward scored a completion.
    """
    scored: List[Optional[float]] = []
    calls = []
    for part in filter(None, (rows[:1], rows[1:])):
        arguments = call_arguments(part, tokenizer)
        began = time.perf_counter()
        scored += [number for reward in rewards for number in check_reward(reward, arguments)]
        calls.append((len(arguments["completions"]), time.perf_counter() - began))
    if all(number is None for number in scored):
        names = " and ".join(name_of(reward) for reward in rewards)
        raise RewardFailedError(
            "the reward function %s returned None for all %d completions it was tried on, so there is nothing to learn"
            % (names, len(rows) * len(TEXTS))
        )
    return cost_of(*calls[0], *calls[-1])


def cost_of(few: int, first: float, many: int, last: float) -> Tuple[float, float]:
    """Returns the cost by two calls for ``few`` and ``many`` completions, without the set-up of the first."""
    each = max(0.0, last - first) / (many - few or math.inf)
    return max(0.0, last - many * each), each


def check_reward(reward: Reward, arguments: Mapping[str, Any]) -> List[Optional[float]]:
    """Returns one reward's scores of ``arguments``; ``None`` where it cannot score. Raises like ``check_rewards``."""
    name = name_of(reward)
    try:
        answer = reward(**arguments)
        if inspect.isawaitable(answer):
            answer = asyncio.run(awaited(answer))
    except RAISED as error:
        if isinstance(error, RewardFailedError):
            raise
        raise RewardFailedError("the reward function %s raised %s" % (name, describe(error))) from error
    return as_numbers(answer, name, arguments["completions"])


async def awaited(answer: Any) -> Any:
    """Wraps an awaitable as the coroutine that ``asyncio.run`` needs."""
    return await answer


def call_arguments(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Dict[str, Any]:
    """Builds the keyword arguments of one call: each row once for each of ``TEXTS``, its columns repeated."""
    repeated = [row for row in rows for _ in TEXTS]
    texts = [text for _ in rows for text in TEXTS]
    columns = {key: [row[key] for row in repeated] for key in rows[0] if key not in NOT_COLUMNS}
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
    """Replaces TRL's logging callbacks."""
