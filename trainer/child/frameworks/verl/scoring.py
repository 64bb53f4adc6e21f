"""A study's rewards in verl's form: one completion at a time, from several threads of a reward worker.

verl logs a failed reward and trains on the rest; this module reports the failure, so that the trial ends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import threading
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional

from ...contract import FailureReason, RunPaths, read_spec
from ...rewards import RAISED, as_numbers, as_reward_error, load_reward, name_of
from .board import ReportedFailure, tell_failure
from .inside import here

_ONE_AT_A_TIME = threading.Lock()


def score(solution: str, truth: str, extra: Optional[Mapping[str, Any]]) -> float:
    """Returns the sum of the rewards of one completion; a reward of ``None`` counts as 0.

    Args:
        truth: the prompt's line of the prompts file, as JSON.
        extra: mapping with ``index``, the prompt's number.
    """
    inside = here()
    with _ONE_AT_A_TIME:
        try:
            total = sum(_one(reward, solution, json.loads(truth)) for reward in _rewards(inside.places.root))
        except RAISED as error:
            failed = as_reward_error(error)
            tell_failure(inside.places, ReportedFailure(FailureReason.REWARD_ERROR.value, str(failed)))
            raise
    inside.tell_score((extra or {}).get("index", 0), total)
    return total


@functools.lru_cache(maxsize=None)
def _rewards(root: Path) -> List[Callable[..., Any]]:
    return [load_reward(reward) for reward in read_spec(RunPaths(root).config).rewards]


def _one(reward: Callable[..., Any], solution: str, columns: Mapping[str, Any]) -> float:
    prompt = columns["prompt"]
    completion: Any = solution if isinstance(prompt, str) else [{"role": "assistant", "content": solution}]
    given = {name: [value] for name, value in columns.items() if name != "prompt"}
    given["completions"] = [completion]
    scores = reward(prompts=[prompt], **given)
    if inspect.isawaitable(scores):
        scores = asyncio.run(_awaited(scores))
    return as_numbers(scores, name_of(reward), given["completions"])[0] or 0.0


async def _awaited(scores: Any) -> Any:
    return await scores
