"""Reads the tables of trials in `benchmarks/tables/search-cpu-*`: each row is one configuration, measured once.

A file is JSON lines, compressed if its name ends in ``.gz``: a header with what all rows share, then a line for each
configuration, with its cycles (``lengths`` is null for the header's), peaks, outcome and repeats.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.documents import codec
from autotune.domain import Configuration, Protocol, Resources, Trial
from autotune.errors import UsageError
from trainer.child.contract import ContractError, CycleRecord, decode, encode


@dataclass(frozen=True)
class Header:
    """Machine, workload and protocol of all rows."""

    model: str
    resources: Resources
    baseline: Configuration
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    protocol: Protocol
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    memory_limit: int | None = None


@dataclass(frozen=True)
class RecordedTable:
    """First measurements of the configurations, in the order in which they ran, the baseline among them."""

    name: str
    header: Header
    trials: tuple[Trial, ...]


def read(path: Path) -> RecordedTable:
    """Reads the table in a file.

    Raises:
        UsageError: the file is no table, or a line of it cannot be read.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        first, *rows = map(json.loads, data.splitlines())
        header: Header = codec.load(Header, json.dumps(first))
        return RecordedTable(path.name.split(".")[0], header, tuple(_trial(row, header) for row in rows))
    except (OSError, EOFError, ContractError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is no recorded table: {error}") from None


def _trial(row: Mapping[str, Any], header: Header) -> Trial:
    protocol = {**encode(header.protocol), "natural": row["natural_cycles"]}
    own = {"study_id": 0, "watchdog_peak": row["host_peak"], "cycles": [], "protocol": protocol}
    trial: Trial = codec.load(Trial, json.dumps({**row, **own}))
    cycles = [{**c, "lengths": c["lengths"] or list(header.protocol.lengths)} for c in row["cycles"]]
    return trial.with_(cycles=tuple(decode(CycleRecord, cycle, "cycle") for cycle in cycles))
