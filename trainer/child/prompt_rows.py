"""Reads a study's prompts as rows, from a task, a JSONL file or a dataset; checks, samples and measures the rows."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .failures import describe
from .reward_files import working_in
from .rewards import ENTRY_COLUMN, create_task

Row = Dict[str, Any]

MOST_MEASURED = 20_000
"""Largest number of rows whose tokens are counted; a larger dataset is sampled at random."""
MOST_WRITTEN = 2_048
"""Largest number of rows written; trials repeat the rows in turn."""
VERIFIED_ENTRIES = 8
PICTURES = ("image", "images", "video", "videos", "audio", "audios")
KINDS = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


class UnusablePromptsError(ValueError):
    """Prompts that cannot be used; the message is a sentence with the remedy."""


@dataclass(frozen=True)
class TaskSpec:
    """A reasoning-gym task and its number of prompts."""

    name: str
    size: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def task_rows(task: TaskSpec, conversational: bool) -> List[Row]:
    """Returns ``task.size`` prompts with their entries; as messages if the model has a chat template."""
    if task.size < 1:
        raise UnusablePromptsError("the task has no prompts: its size is %d" % task.size)
    dataset = create_task(task.name, {**task.options, "size": task.size, "seed": task.seed})
    rows = []
    for index in range(task.size):
        entry = dataset[index]
        question = str(entry["question"])
        prompt = [{"role": "user", "content": question}] if conversational else question
        rows.append({"prompt": prompt, ENTRY_COLUMN: entry_text(dataset, entry, index < VERIFIED_ENTRIES)})
    return rows


def entry_text(dataset: Any, entry: Mapping[str, Any], verify: bool) -> str:
    """Returns ``entry`` as JSON; with ``verify``, checks that the decoded entry scores its own answer as before.

    Raises UnusablePromptsError for an entry that JSON cannot represent.
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
    """Converts a value that ``json`` cannot encode, such as an array, numpy number, set or date."""
    for method in ("tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def read_rows(path: Path) -> List[Row]:
    """Returns the rows of a JSONL file. Raises ``UnusablePromptsError`` naming the file and line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # not splitlines: JSON text may hold U+2028
    except UnicodeDecodeError as error:
        raise UnusablePromptsError("%s, byte %d: this is not UTF-8 text" % (path, error.start)) from None
    except OSError as error:
        raise UnusablePromptsError("%s cannot be read: %s" % (path, describe(error))) from error
    rows: List[Row] = []
    kinds: Dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = "%s, line %d" % (path, number)
            rows.append(read_row(line, where))
            if rows[-1].keys() != rows[0].keys():
                raise UnusablePromptsError(
                    "%s: its columns (%s) are not those of the first line (%s)"
                    % (where, ", ".join(sorted(rows[-1])), ", ".join(sorted(rows[0])))
                )
            refuse_mixed(rows[-1], kinds, where)
    if not rows:
        raise UnusablePromptsError("%s holds no prompts" % path)
    return rows


def read_row(line: str, where: str) -> Row:
    """Parses a row with a ``prompt`` that is text or a list of messages (``messages`` in ms-swift's files)."""
    try:
        row = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise UnusablePromptsError("%s: not JSON: %s" % (where, str(error).replace("line 1 ", ""))) from None
    if "\\u" in line and not is_text(row):
        raise UnusablePromptsError("%s: it holds half of a character (a lone surrogate such as \\ud83d)" % where)
    if isinstance(row, dict) and "prompt" not in row and is_prompt(row.get("messages")):
        messages = row.pop("messages")  # ms-swift takes an answer at their end off, too
        row["prompt"] = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    if not isinstance(row, dict) or not is_prompt(row.get("prompt")):
        raise UnusablePromptsError(
            '%s: it needs a "prompt" that is text, not empty, or a list of {"role", "content"}, or "messages"' % where
        )
    refuse_pictures(row, where)
    return row


def unique(pairs: Sequence[Tuple[str, Any]]) -> Row:
    """Builds a JSON object from its pairs. Raises ``ValueError`` for a repeated key: JSON would drop a value."""
    row = dict(pairs)
    for key in row if len(row) < len(pairs) else ():
        if sum(key == name for name, _ in pairs) > 1:
            raise ValueError("the key %r is given twice" % key)
    return row


def refuse_pictures(row: Mapping[str, Any], where: str) -> None:
    """Raises ``UnusablePromptsError`` for a row with images or other media: a trial would only train on the text."""
    columns = [column for column in PICTURES if row.get(column)]
    contents = [] if isinstance(row["prompt"], str) else [message["content"] for message in row["prompt"]]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    kind = next((kind for kind in (*columns, *(part.get("type", "text") for part in parts)) if kind != "text"), None)
    if kind is not None:
        raise UnusablePromptsError(
            "%s: it holds %r, and trials have prompts of text only: give text prompts as long as yours" % (where, kind)
        )


def is_text(value: Any) -> bool:
    """Tells whether all text in a JSON value can be encoded; half of a surrogate pair cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def refuse_mixed(row: Mapping[str, Any], kinds: Dict[str, str], where: str) -> None:
    """Raises ``UnusablePromptsError`` for a column with another type than in earlier rows.

    A dataset's columns have one type each; ``kinds`` is column -> type so far.
    """
    for column, value in row.items():
        kind = KINDS.get(type(value))
        if kind is not None and kinds.setdefault(column, kind) != kind:
            raise UnusablePromptsError(
                "%s: column %r is %s here and %s before; a column holds one type" % (where, column, kind, kinds[column])
            )


def is_prompt(prompt: Any) -> bool:
    """Tells whether ``prompt`` is text that is not empty, or a non-empty conversation."""
    if isinstance(prompt, str):
        return bool(prompt)
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in prompt)
    )


def measure(
    prompts: Sequence[Any], tokenizer: Any, model: str, template_arguments: Optional[Mapping[str, Any]] = None
) -> List[int]:
    """Returns the token count of each prompt, as the trainer feeds prompts to the model.

    Raises UnusablePromptsError if the model has no chat template for messages, or refuses a message.
    """
    if not all(isinstance(p, str) for p in prompts) and not tokenizer.chat_template:
        raise UnusablePromptsError("the tokenizer of %s has no chat template: give the prompts as text" % model)
    lengths = []
    for number, prompt in enumerate(prompts, 1):
        if isinstance(prompt, str):
            lengths.append(len(tokenizer(prompt)["input_ids"]))
            continue
        try:
            text = tokenizer.apply_chat_template(
                prompt, tokenize=False, add_generation_prompt=True, **(template_arguments or {})
            )
        except Exception as error:  # a template is a program of the model's author
            raise UnusablePromptsError(
                "the chat template of %s refuses prompt %d: %s" % (model, number, describe(error))
            ) from error
        lengths.append(len(tokenizer(text, add_special_tokens=False)["input_ids"]))
    return lengths


def refuse_long(lengths: Sequence[int], limit: int) -> None:
    """Raises ``UnusablePromptsError`` with the number of prompts longer than ``limit`` tokens, if there are any."""
    too_long = sum(length > limit for length in lengths)
    if too_long:
        raise UnusablePromptsError(
            "%d of %d prompts are longer than the %d tokens allowed (the longest has %d): raise the maximum prompt "
            "length to %d or leave them out" % (too_long, len(lengths), limit, max(lengths), max(lengths))
        )


def sample(count: int, most: int, seed: int, keep: Optional[int] = None) -> List[int]:
    """Returns at most ``most`` indices below ``count``, ascending and fixed by the seed; ``keep`` is one of them."""
    if count <= most:
        return list(range(count))
    chosen = set(random.Random(seed).sample(range(count), most))  # noqa: S311  (not for secrets)
    if keep is not None and keep not in chosen:
        chosen.remove(max(chosen))
        chosen.add(keep)
    return sorted(chosen)


def dataset_rows(keys: Mapping[str, Any], folder: Optional[str], seed: int) -> Tuple[List[Row], int]:
    """Returns (at most ``MOST_MEASURED`` rows of the training split, its number of rows, 0 if a stream has none).

    Args:
        keys: the dataset keys of the configuration, by TRL's names.
        folder: the user's working directory, to which the user's paths are relative.
        seed: seed of the sample of a larger dataset.

    Raises:
        UnusablePromptsError: a dataset that cannot be loaded, has no such split, or no usable prompts.
    """
    name = source_of(keys)
    with working_in(folder or ""):
        try:
            split = load_split(keys, name)
            count = 0 if not hasattr(split, "__len__") else len(split)
            found = split.select(sample(count, MOST_MEASURED, seed)) if count else split.take(MOST_MEASURED)
            rows = [dict(row) for row in found]
        except UnusablePromptsError:
            raise
        except Exception as error:  # the hub, the network, the file system, pyarrow and the dataset's own code
            raise UnusablePromptsError("the dataset %s cannot be loaded: %s" % (name, describe(error))) from error
    return [checked(row, name, number) for number, row in enumerate(rows, 1)], count


def source_of(keys: Mapping[str, Any]) -> str:
    """Returns the name of the dataset for messages."""
    if keys.get("datasets"):
        return " + ".join(str(part.get("path")) for part in keys["datasets"])
    if keys.get("dataset_name"):
        return str(keys["dataset_name"])
    raise UnusablePromptsError("the configuration names no dataset: set dataset_name, or give --data")


def load_split(keys: Mapping[str, Any], name: str) -> Any:
    """Loads the training split as ``trl.scripts.grpo`` does."""
    wanted = str(keys.get("dataset_train_split") or "train")
    if keys.get("datasets"):
        from trl import DatasetMixtureConfig, get_dataset

        parts = [dict(part) for part in keys["datasets"]]
        found = get_dataset(
            DatasetMixtureConfig(
                datasets=parts,
                streaming=bool(keys.get("streaming", False)),
                test_split_size=keys.get("test_split_size"),
            )
        )
    else:
        from datasets import load_dataset

        if os.path.isfile(name):
            raise UnusablePromptsError(
                "dataset_name %s is a file, and TRL loads a folder or a hub id: write %s, or give the file by --data"
                % (name, os.path.dirname(name) or ".")
            )
        found = load_dataset(
            name, name=keys.get("dataset_config"), streaming=bool(keys.get("dataset_streaming", False))
        )
    if wanted not in found:
        raise UnusablePromptsError(
            "the dataset %s has no split %r: set dataset_train_split to one of %s" % (name, wanted, ", ".join(found))
        )
    return found[wanted]


def checked(row: Row, name: str, number: int) -> Row:
    """Returns ``row`` as plain JSON values. Raises ``UnusablePromptsError`` if the row is not usable."""
    if "prompt" not in row:
        raise UnusablePromptsError(
            "the dataset %s has no column prompt (it has %s); GRPO needs one" % (name, ", ".join(sorted(row)))
        )
    if not is_prompt(row["prompt"]):
        raise UnusablePromptsError(
            "row %d of the dataset %s: its prompt is neither text nor a list of messages" % (number, name)
        )
    refuse_pictures(row, "row %d of the dataset %s" % (number, name))
    for column, value in row.items():
        if type(value).__module__.startswith(("PIL", "torch", "torchcodec")) or isinstance(value, bytes):
            raise UnusablePromptsError(
                "column %r of the dataset %s holds %s objects; a trial can use text, numbers, lists and mappings only"
                % (column, name, type(value).__name__)
            )
    stored: Row = json.loads(json.dumps(row, default=plain))
    return stored
