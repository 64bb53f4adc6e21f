"""As much of ``datasets`` as a trial's prompts use."""

from __future__ import annotations

from typing import Any


class Dataset(list[Any]):
    @classmethod
    def from_list(cls, rows: list[Any]) -> Dataset:
        return cls(rows)
