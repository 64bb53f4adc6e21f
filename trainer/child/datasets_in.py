"""Loads the dataset a TRL configuration names, with TRL's and datasets' own functions."""

from __future__ import annotations

import json
import os
from typing import Any, List, Mapping, Optional, Tuple

from .failures import describe
from .prompt_rows import MOST_MEASURED, Row, UnusablePromptsError, is_prompt, plain, refuse_pictures, sample
from .reward_files import working_in


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
