"""Writes the prompts of a study, counts their tokens with the model's tokenizer, and tests the rewards on a few.

``main`` is one command of ``start.py``: it reads a ``Preparation`` from ``config.json``, and writes ``prompts.jsonl``
and its findings in ``result.json``. Nothing is trained or generated.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .checks import as_mapping
from .contract import (
    ContractError,
    FailureReason,
    Phase,
    PhaseMark,
    Result,
    RewardSpec,
    RunPaths,
    StartupPart,
    decode,
    dumps,
    write_atomic,
)
from .failures import IllegalSettingError, RewardFailedError, classify, describe, fault_of_reward, tail
from .model_facts import model_facts, model_folder, refuse_broken
from .prompt_rows import (
    MOST_MEASURED,
    MOST_WRITTEN,
    Row,
    TaskSpec,
    UnusablePromptsError,
    dataset_rows,
    measure,
    read_rows,
    refuse_long,
    sample,
    task_rows,
)
from .reward_files import Reward
from .rewards import OF_FRAMEWORK, RAISED, as_numbers, create_task, load_reward, name_of
from .user_environment import put_environment

PROMPTS_FILE = "prompts.jsonl"
TRIED_PROMPTS = 8


class Conversations(NamedTuple):
    """Describes how a framework converts every prompt to a conversation."""

    title: str
    template: str
    """The framework's key of the chat template."""
    system: str = ""
    """The framework's key of the system prompt."""
    scored: bool = False
    """Whether rewards get prompts as conversations, instead of as texts."""


CONVERSATIONS = {
    # open_r1/grpo.py: make_conversation
    "open_r1": Conversations("Open-R1", "chat_template", "system_prompt", scored=True),
    # verl/utils/dataset/rl_dataset.py; the adapter's reward is given the text (frameworks/verl/scoring.py)
    "verl": Conversations("verl", "actor_rollout_ref.model.custom_chat_template"),
}


@dataclass(frozen=True)
class Preparation:
    """``config.json`` of a preparation. Exactly one of ``task``, ``data`` and ``dataset`` is given."""

    model: str
    """Folder or hub id."""
    rewards: Tuple[RewardSpec, ...]
    max_prompt_length: Optional[int] = None
    """Tokens; a longer prompt is refused, never cut. ``None``: the length of the longest prompt."""
    task: Optional[TaskSpec] = None
    data: Optional[str] = None
    """JSONL file, each line ``{"prompt": str | list[message], ...columns the reward reads}``."""
    dataset: Optional[Mapping[str, Any]] = None
    """The dataset keys of a TRL configuration."""
    folder: Optional[str] = None
    """The user's working directory."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """Same as in ``TrialSpec``; the environment and the chat template's arguments are used."""
    seed: int = 0
    framework: str = "trl"
    """Framework whose conversation format applies to the prompts (``CONVERSATIONS``)."""


def main(directory: Path) -> Result:
    """Prepares the request in ``directory/config.json``; the result is also written to ``result.json``.

    ``Result.data``: ``count`` of ``found`` prompts (0 = unknown) that were written, ``longest_prompt`` and
    ``mean_prompt`` (tokens), ``sha256`` of ``prompts`` (the file's path), ``columns``, ``rewards`` (names of the tried
    functions), ``reward_s`` (see ``check_rewards``), ``model`` (facts by the names of ``ModelFacts``, ``None`` if
    unknown), ``model_folder`` and ``commit`` (``None`` for a folder).
    """
    paths = RunPaths(directory)
    try:
        result = Result(ok=True, data=prepare(directory, read_preparation(paths.config)))
    except (ContractError, UnusablePromptsError, IllegalSettingError) as error:
        result = Result(ok=False, reason=FailureReason.ILLEGAL, message=str(error))
    except RewardFailedError as error:
        result = Result(
            ok=False, reason=FailureReason.REWARD_ERROR, phase=Phase.REWARD, message=str(error), detail=tail(error)
        )
    except Exception as error:
        result = classify(error, None)
    write_atomic(paths.result, dumps(result))
    return result


def read_preparation(path: Path) -> Preparation:
    """Reads a ``Preparation``. Raises ``ContractError`` if the file contains none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ContractError("%s: %s" % (path, describe(error))) from None
    preparation: Preparation = decode(Preparation, value, path.name)
    if [preparation.task, preparation.data, preparation.dataset].count(None) != 2:
        raise ContractError("%s: give either a task, a data file or a dataset" % path.name)
    if not preparation.rewards:
        raise ContractError("%s: give a reward" % path.name)
    return preparation


def prepare(directory: Path, request: Preparation) -> Dict[str, Any]:
    """Runs the work of ``main``; returns ``Result.data``.

    Raises:
        UnusablePromptsError: a prompt is malformed or too long, or there is none.
        RewardFailedError: a reward cannot be loaded, or does not give one number for each completion.
        IllegalSettingError: no access to the model.
    """
    put_environment(request.passthrough)
    # What is quick and most often wrong comes first, so that a broken line is said before anything heavy is imported.
    given = read_rows(Path(request.data)) if request.data is not None else None
    mark = PhaseMark(RunPaths(directory).phase)
    mark.set(Phase.REWARD.value)  # A reward may end this process, and the tuner then knows who did.
    rewards = [load_reward(spec) for spec in request.rewards if spec.kind not in OF_FRAMEWORK]
    mark.set(StartupPart.LOAD.value)
    if request.task is not None:
        create_task(request.task.name, {**request.task.options, "size": 1, "seed": request.task.seed})
    folder = model_folder(request.model, request.passthrough.get("model_revision"))
    refuse_broken(folder)
    tokenizer = load_tokenizer(str(folder))
    made = CONVERSATIONS.get(request.framework)
    if made is not None:
        put_template(tokenizer, made, request)
    rows, found = all_rows(request, given, bool(tokenizer.chat_template))
    asked = rows if made is None else conversations(rows, request.passthrough.get(made.system))
    arguments = as_mapping(request.passthrough.get("chat_template_kwargs"), "chat_template_kwargs")
    lengths = measure([row["prompt"] for row in asked], tokenizer, request.model, arguments)
    refuse_long(lengths, request.max_prompt_length or max(lengths))
    mark.set(Phase.REWARD.value)
    scored = asked if made is not None and made.scored else rows
    cost = check_rewards(rewards, scored[:TRIED_PROMPTS], tokenizer) if rewards else (0.0, 0.0)
    mark.set(StartupPart.LOAD.value)
    kept = sample(len(rows), MOST_WRITTEN, request.seed, keep=lengths.index(max(lengths)))
    text = "".join(json.dumps(rows[index]) + "\n" for index in kept)
    prompts = directory / PROMPTS_FILE
    write_atomic(prompts, text)
    return {
        "count": len(kept),
        "found": found,
        "longest_prompt": max(lengths),
        "mean_prompt": sum(lengths) / len(lengths),
        "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest(),
        "prompts": str(prompts),
        "columns": sorted(rows[0]),
        "rewards": [name_of(reward) for reward in rewards],
        "reward_s": list(cost),
        "model": model_facts(str(folder)),
        "model_folder": str(folder),
        "commit": None if os.path.isdir(request.model) else folder.name,
    }


def put_template(tokenizer: Any, kind: Conversations, request: Preparation) -> None:
    """Sets the user's chat template, if any, in the tokenizer. Raises ``UnusablePromptsError`` if it then has none."""
    tokenizer.chat_template = request.passthrough.get(kind.template) or tokenizer.chat_template
    if not tokenizer.chat_template:
        raise UnusablePromptsError(
            "the tokenizer of %s has no chat template, and %s makes a conversation of each prompt: name a template by "
            "%s, or put it into the model's folder as chat_template.jinja" % (request.model, kind.title, kind.template)
        )


def conversations(rows: Sequence[Row], system: Any) -> List[Row]:
    """Returns the rows with each prompt as messages, after the system prompt if there is one."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return [
        {**row, "prompt": [*first, {"role": "user", "content": row["prompt"]}]}
        if isinstance(row["prompt"], str)
        else row
        for row in rows
    ]


def all_rows(request: Preparation, own: Optional[List[Row]], conversational: bool) -> Tuple[List[Row], int]:
    """Returns (the rows whose tokens are counted, the number of all rows; 0 = unknown)."""
    if request.task is not None:
        rows = task_rows(request.task, conversational)
        return rows, len(rows)
    if own is not None:
        return [own[index] for index in sample(len(own), MOST_MEASURED, request.seed)], len(own)
    rows, found = dataset_rows(request.dataset or {}, request.folder, request.seed)
    if not rows:
        raise UnusablePromptsError("the dataset holds no prompts")
    return rows, found


def load_tokenizer(model: str) -> Any:
    """Loads the tokenizer. Raises ``UnusablePromptsError`` if there is none, ``ImportError`` without transformers."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except ImportError:
        raise
    except Exception as error:  # its files are the user's, and so may its code be
        raise UnusablePromptsError("the tokenizer of %s cannot be loaded: %s" % (model, describe(error))) from error


TEXTS = ("I think the answer is 7. <answer>7</answer>", "")
"""An ordinary completion, and the empty completion of a model that ends at once."""
NOT_COLUMNS = ("prompt", "completion", "completion_ids")
"""Prompt columns that TRL does not pass on to a reward."""


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
    """Returns (seconds of a call, of each completion) from two calls' sizes and seconds, without the first's set-up."""
    each = max(0.0, last - first) / (many - few or math.inf)
    return max(0.0, last - many * each), each


def check_reward(reward: Reward, arguments: Mapping[str, Any]) -> List[Optional[float]]:
    """Returns a reward's scores of ``arguments``; ``None`` for unscorable completions. Raises as ``check_rewards``."""
    name = name_of(reward)
    try:
        answer = reward(**arguments)
        if inspect.isawaitable(answer):
            answer = asyncio.run(awaited(answer))
    except RAISED as error:
        if isinstance(error, RewardFailedError):
            raise
        raise RewardFailedError("the reward function %s raised %s" % (name, fault_of_reward(error))) from error
    return as_numbers(answer, name, arguments["completions"])


async def awaited(answer: Any) -> Any:
    """Wraps an awaitable as the coroutine that ``asyncio.run`` needs."""
    return await answer


def call_arguments(rows: Sequence[Mapping[str, Any]], tokenizer: Any) -> Dict[str, Any]:
    """Builds the keyword arguments of one call, with each row once for each of ``TEXTS``."""
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
