"""A trial's prompts for verl: the prompts file in order, repeated as needed.

verl loads it by ``data.custom_cls.path``.
"""

from __future__ import annotations

import json
from typing import Any, Dict

import datasets
from autotune_in_verl import ours  # type: ignore[import-not-found]
from verl.utils.dataset.rl_dataset import RLHFDataset

scoring = ours("scoring")


def row_of(columns: Dict[str, Any]) -> Dict[str, Any]:
    """Converts a line to verl's columns; encodes the columns that the reward reads as text."""
    prompt = columns["prompt"]
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return {
        "prompt": [{"role": message["role"], "content": message["content"]} for message in messages],
        "data_source": "autotune",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(columns)},
        "extra_info": {"index": 0},
    }


class Prompts(RLHFDataset):  # type: ignore[misc]
    """Prompts of the trial; one epoch contains the whole trial."""

    def _read_files_and_tokenize(self) -> None:
        rows = []
        for path in self.data_files:
            with open(path, encoding="utf-8") as lines:
                rows += [row_of(json.loads(line)) for line in lines if line.strip()]
        self.dataframe = self.maybe_filter_out_long_prompts(datasets.Dataset.from_list(rows))

    def __len__(self) -> int:
        """Returns the number of prompts of all steps."""
        board = scoring.here().board
        return int(board.prompts * board.total)

    def __getitem__(self, item: int) -> Any:
        """Returns the prompt with number ``item`` in the trial."""
        row = super().__getitem__(int(item) % len(self.dataframe))
        row["extra_info"] = {**row["extra_info"], "index": int(item)}
        row["index"] = int(item)
        return row
