"""Gives ms-swift a trial's prompts, as it reads them, and the study's rewards, as a plugin would."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

from swift.dataset import DatasetMeta, RowPreprocessor, register_dataset
from swift.rewards import ORM, AsyncORM, orms

from ...checks import prompts_of
from ...contract import TrialSpec
from ...rewards import guarded, load_rewards

OWN = "ms_swift"
"""Kind of a reward that ms-swift, or a plugin of the user's, has itself."""


@dataclass(frozen=True)
class Written:
    """The prompts file written for ms-swift."""

    path: Path
    raw: bool
    """Prompts are plain texts, not messages."""


class Prompts(RowPreprocessor):  # type: ignore[misc]
    """Rows whose ``prompt`` becomes ``messages``."""

    def preprocess(self, row: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the row with messages."""
        prompt = row.pop("prompt")
        row["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return row


def write(path: str, scratch: Path, rows: int) -> Written:
    """Writes the prompts, repeated until they fill ``rows``, so that one epoch holds the whole trial.

    Raises IllegalSettingError for a file without prompts, or another file.
    """
    entries = [entry for entry, _ in prompts_of(path)]
    found = scratch / "prompts.jsonl"
    with found.open("w", encoding="utf-8") as stream:
        for index in range(max(rows, len(entries))):
            stream.write(json.dumps(entries[index % len(entries)], ensure_ascii=False) + "\n")
    register_dataset(DatasetMeta(dataset_path=str(found), preprocess_func=Prompts()), exist_ok=True)
    return Written(found, all(isinstance(entry["prompt"], str) for entry in entries))


def rewards_of(spec: TrialSpec) -> List[Callable[..., Any]]:
    """Loads rewards that are not ms-swift's own, in order. Raises ``RewardFailedError`` if one cannot be loaded."""
    return load_rewards([reward for reward in spec.rewards if reward.kind != OWN])


def register(spec: TrialSpec, rewards: Sequence[Callable[..., Any]], raw: bool) -> List[str]:
    """Registers the rewards with ms-swift; returns the names for ``reward_funcs``, ms-swift's own included.

    ``raw`` tells that prompts are plain texts, so that TRL would give completions as texts, not as messages.
    """
    names: List[str] = []
    made = iter(rewards)
    for reward in spec.rewards:
        if reward.kind == OWN:
            names.append(reward.name)
            continue
        function = next(made)
        name = "%s_%d" % (getattr(function, "__name__", "reward"), len(names))
        orms[name] = _class(function, name, raw)
        names.append(name)
    return names


def _class(function: Callable[..., Any], name: str, raw: bool) -> Any:
    own = guarded(function)
    if inspect.iscoroutinefunction(function):

        async def score_async(_: Any, completions: List[str], messages: Any = (), **columns: Any) -> Any:
            return await own(**_reward_arguments(completions, messages, columns, raw))

        return type(name, (AsyncORM,), {"__call__": score_async})

    def score(_: Any, completions: List[str], messages: Any = (), **columns: Any) -> Any:
        return own(**_reward_arguments(completions, messages, columns, raw))

    return type(name, (ORM,), {"__call__": score})


def _reward_arguments(completions: List[str], messages: Any, columns: Dict[str, Any], raw: bool) -> Dict[str, Any]:
    """Returns the arguments for a reward of TRL's signature: prompts without the generated messages."""
    prompts: List[Any] = [[message for message in row if message["role"] != "assistant"] for row in messages]
    written: List[Any] = list(completions)
    if raw:
        prompts = [row[-1]["content"] for row in prompts]
    else:
        written = [[{"role": "assistant", "content": completion}] for completion in completions]
    return {"prompts": prompts, "completions": written, "completion_ids": columns.get("response_token_ids"), **columns}
