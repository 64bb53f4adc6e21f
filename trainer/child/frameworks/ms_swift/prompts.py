"""Writes a trial's prompts as ms-swift reads them: messages, and all other columns unchanged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict

from swift.dataset import DatasetMeta, RowPreprocessor, register_dataset

from ...checks import prompts_of


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
