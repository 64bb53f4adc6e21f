"""verl's dataset, as far as ``verl/utils/dataset/rl_dataset.py`` of 0.9.1 goes before the tokenizer."""

from __future__ import annotations

from typing import Any


class RLHFDataset:
    dataframe: Any

    def __init__(self, data_files: str) -> None:
        self.data_files = [data_files]
        self._read_files_and_tokenize()

    def _read_files_and_tokenize(self) -> None:
        raise NotImplementedError

    def maybe_filter_out_long_prompts(self, dataframe: Any) -> Any:
        return dataframe

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = dict(self.dataframe[item])
        row["raw_prompt"] = row["prompt"]
        row["index"] = row["extra_info"]["index"]
        return row
