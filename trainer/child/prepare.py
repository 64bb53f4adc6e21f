"""Write the prompts of a study, measured with the model's own tokenizer, and try the reward on a few.

``main`` is one command of ``start.py``: it reads a ``Preparation`` from ``config.json``, writes
``prompts.jsonl`` beside it and says in ``result.json`` what it found. Nothing is trained or generated.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .contract import ContractError, FailureReason, Phase, Result, RewardSpec, RunPaths, decode, dumps, write_atomic
from .failures import RewardFailedError, classify, describe, tail
from .model_facts import model_facts
from .rewards import ENTRY_COLUMN, create_task, load_reward
from .trial_reward import check_reward

PROMPTS_FILE = "prompts.jsonl"
TRIED_PROMPTS = 8

Row = Dict[str, Any]


class UnusablePromptsError(ValueError):
    """The prompts cannot be used as they are; the message is a sentence that says what to change."""


@dataclass(frozen=True)
class TaskSpec:
    """A reasoning-gym task and how many prompts of it."""

    name: str
    size: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Preparation:
    """``config.json`` of a preparation. Exactly one of ``task`` and ``data`` is given."""

    model: str
    """Folder or hub id."""
    max_prompt_length: int
    """Tokens; a longer prompt is refused, never cut."""
    reward: RewardSpec
    task: Optional[TaskSpec] = None
    data: Optional[str] = None
    """JSONL file, each line ``{"prompt": str | list[message], ...columns the reward reads}``."""


def main(directory: Path) -> Result:
    """Prepare what ``directory/config.json`` asks for; the result is also written to ``result.json``.

    ``Result.data``: ``count``, ``longest_prompt`` and ``mean_prompt`` (tokens), ``sha256`` of
    ``prompts`` (the file's path), ``columns``, ``reward`` (the function's name), ``model`` (facts by
    the names of ``ModelFacts``, ``None`` where not known).
    """
    paths = RunPaths(directory)
    try:
        result = Result(ok=True, data=prepare(directory, read_preparation(paths.config)))
    except (ContractError, UnusablePromptsError) as error:
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
    """Raises ``ContractError`` if the file is no preparation."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ContractError("%s: %s" % (path, describe(error))) from None
    preparation: Preparation = decode(Preparation, value, path.name)
    if (preparation.task is None) == (preparation.data is None):
        raise ContractError("%s: give either a task or a data file" % path.name)
    return preparation


def prepare(directory: Path, wanted: Preparation) -> Dict[str, Any]:
    """The work of ``main``; returns ``Result.data``.

    Raises:
        UnusablePromptsError: a prompt is malformed or too long, or there is none.
        RewardFailedError: the reward cannot be loaded, or does not give one number for each completion.
    """
    tokenizer = load_tokenizer(wanted.model)
    rows = task_rows(wanted.task, bool(tokenizer.chat_template)) if wanted.task else read_rows(Path(str(wanted.data)))
    lengths = measure([row["prompt"] for row in rows], tokenizer, wanted.model)
    refuse_long(lengths, wanted.max_prompt_length)
    reward = load_reward(wanted.reward)
    check_reward(reward, rows[:TRIED_PROMPTS], tokenizer)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    prompts = directory / PROMPTS_FILE
    write_atomic(prompts, text)
    return {
        "count": len(rows),
        "longest_prompt": max(lengths),
        "mean_prompt": sum(lengths) / len(lengths),
        "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest(),
        "prompts": str(prompts),
        "columns": sorted(rows[0]),
        "reward": getattr(reward, "__name__", wanted.reward.name),
        "model": model_facts(wanted.model),
    }


def load_tokenizer(model: str) -> Any:
    """Raises ``UnusablePromptsError`` if ``model`` has no tokenizer, ``ImportError`` without transformers."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise UnusablePromptsError("the tokenizer of %s cannot be loaded: %s" % (model, describe(error))) from error


def task_rows(task: TaskSpec, conversational: bool) -> List[Row]:
    """``task.size`` prompts with their entries; as messages if the model has a chat template for them."""
    if task.size < 1:
        raise UnusablePromptsError("the task has no prompts: its size is %d" % task.size)
    dataset = create_task(task.name, {**task.options, "size": task.size, "seed": task.seed})
    rows = []
    for index in range(task.size):
        entry = dataset[index]
        question = str(entry["question"])
        prompt = [{"role": "user", "content": question}] if conversational else question
        rows.append({"prompt": prompt, ENTRY_COLUMN: entry_text(dataset, entry, index < TRIED_PROMPTS)})
    return rows


def entry_text(dataset: Any, entry: Mapping[str, Any], verify: bool) -> str:
    """``entry`` as JSON; verified, what comes back from it scores its own answer as the entry did.

    Raises:
        UnusablePromptsError: the task keeps something in its entries that JSON cannot carry.
    """
    text = json.dumps(entry, default=plain)
    answer = entry.get("answer")
    if verify and isinstance(answer, str):
        try:
            same = dataset.score_answer(answer, json.loads(text)) == dataset.score_answer(answer, entry)
        except Exception:  # whatever the task's scorer raises on an entry it does not recognise
            same = False
        if not same:
            raise UnusablePromptsError(
                "this reasoning-gym task cannot be used: its entries do not survive being stored"
            )
    return text


def plain(value: Any) -> Any:
    """A JSON value for what ``json`` does not know: arrays and numpy numbers, sets, dates."""
    for method in ("tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def read_rows(path: Path) -> List[Row]:
    """The rows of a JSONL file.

    Raises:
        UnusablePromptsError: naming the file and line.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: JSON text may hold U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise UnusablePromptsError("%s cannot be read: %s" % (path, describe(error))) from error
    rows: List[Row] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            rows.append(read_row(line, "%s, line %d" % (path, number)))
            if rows[-1].keys() != rows[0].keys():
                raise UnusablePromptsError(
                    "%s, line %d: its columns (%s) are not those of the first line (%s)"
                    % (path, number, ", ".join(sorted(rows[-1])), ", ".join(sorted(rows[0])))
                )
    if not rows:
        raise UnusablePromptsError("%s holds no prompts" % path)
    return rows


def read_row(line: str, where: str) -> Row:
    """One row with a ``prompt`` that is text or a list of messages."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UnusablePromptsError("%s: not JSON: %s" % (where, error)) from None
    prompt = row.get("prompt") if isinstance(row, dict) else None
    if not ((isinstance(prompt, str) and prompt) or is_messages(prompt)):
        raise UnusablePromptsError('%s: it needs a "prompt" that is text or a list of {"role", "content"}' % where)
    return row  # type: ignore[no-any-return]


def is_messages(prompt: Any) -> bool:
    """Whether ``prompt`` is a non-empty conversation."""
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in prompt)
    )


def measure(prompts: Sequence[Any], tokenizer: Any, model: str) -> List[int]:
    """Tokens of each prompt, as the trainer will feed them."""
    if not all(isinstance(p, str) for p in prompts) and not tokenizer.chat_template:
        raise UnusablePromptsError("the tokenizer of %s has no chat template: give the prompts as text" % model)
    lengths = []
    for prompt in prompts:
        if isinstance(prompt, str):
            tokens = tokenizer(prompt)["input_ids"]
        else:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        lengths.append(len(tokens))
    return lengths


def refuse_long(lengths: Sequence[int], limit: int) -> None:
    """Raises ``UnusablePromptsError`` saying how many are longer than ``limit`` tokens."""
    too_long = sum(length > limit for length in lengths)
    if too_long:
        raise UnusablePromptsError(
            "%d of %d prompts are longer than the %d tokens allowed (the longest has %d): raise the maximum prompt "
            "length to %d or leave them out" % (too_long, len(lengths), limit, max(lengths), max(lengths))
        )
