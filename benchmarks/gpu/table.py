"""The table of a run as a file, its summary beside it. ``write`` is the only thing here that touches a file."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.domain import Configuration, Trial, TrialKind
from autotune.tables import files
from autotune.tables.table import table_of
from benchmarks.gpu.architectures import TINY
from benchmarks.gpu.journal import Row
from benchmarks.gpu.run import Run
from trainer.child.contract import encode

TABLES = Path(__file__).resolve().parents[1] / "tables"
MOST_BYTES = 1 << 20
"""Of a table; a larger one is compressed."""
_BRANDS = re.compile(r"nvidia|geforce|\(r\)|\(tm\)")


@dataclass(frozen=True)
class Finished:
    """What a table is made of."""

    run: Run
    trials: tuple[Trial, ...]
    roles: tuple[str, ...]
    """Of each trial."""
    checks: tuple[Row, ...]
    unchecked: str
    """Why no GPU test was run; empty if they were."""

    @property
    def real(self) -> bool:
        """A GPU and a real architecture; anything else never goes where recorded tables are."""
        return self.run.wanted.device == "cuda" and self.run.wanted.architecture.name != TINY

    @property
    def device(self) -> str:
        """The GPU's name, or the processor's."""
        gpus = self.run.fingerprint.hardware["gpus"] if self.run.wanted.device == "cuda" else []
        return str(gpus[0]["name"] if gpus else self.run.fingerprint.hardware["cpu"])

    @property
    def planned(self) -> int:
        return len(self.run.planned())

    @property
    def complete(self) -> bool:
        return self.run.next() is None

    def first(self, role: str) -> Configuration | None:
        """The configuration of a role, where the plan has one."""
        return next((e.configuration for e in self.run.entries if e.role == role), None)


def name_of(finished: Finished) -> str:
    """``h200-qwen2.5-0.5b-2026-11-20``; the day is that of the last trial."""
    device = finished.device if finished.run.wanted.device == "cuda" else "cpu"
    slug = re.sub(r"[^a-z0-9]+", "-", _BRANDS.sub("", device.lower())).strip("-")
    ended = max((t.finished_at or 0.0 for t in finished.trials), default=0.0)
    day = datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%d")
    return f"{slug}-{finished.run.wanted.architecture.name}-{day}"


def folder_of(finished: Finished, tables: Path = TABLES) -> Path:
    """Where the table belongs: what was only tried stays in the run's own folder."""
    return tables if finished.real else finished.run.wanted.out / "table"


def header(finished: Finished) -> dict[str, Any]:
    """The first line: all that every trial has in common."""
    run, workload = finished.run, finished.run.spec.workload
    return {
        "row": "header",
        "measures_a_gpu": finished.real,
        "device": finished.device,
        "architecture": encode(run.wanted.architecture),
        "hardware": encode(run.fingerprint.hardware),
        "software": encode(run.fingerprint.software),
        "fingerprint": run.fingerprint.digest,
        "rows_per_update": workload.rows_per_update,
        "max_prompt_tokens": workload.max_prompt_length,
        "max_completion_tokens": workload.max_completion_length,
        "recorded_lengths_tokens": list(run.lengths()),
        "space": encode(run.spec.space),
        "baseline": dict(run.spec.baseline),
        "seed": run.wanted.seed,
        "planned": finished.planned,
        "finished": len(finished.trials),
        "left_out": run.missing(),
        "gpu_tests": [encode(row) for row in finished.checks],
        "gpu_tests_not_run": finished.unchecked,
    }


def write_for_searches(finished: Finished, tables: Path = TABLES) -> Path:
    """The same trials as a table of ``autotune sweep`` (docs/tables.md)."""
    path = folder_of(finished, tables) / f"search-{name_of(finished)}.jsonl.gz"
    both = zip(finished.trials, finished.roles, strict=True)
    trials = [t.with_(kind=TrialKind.SEARCH) if role == "competent" else t for t, role in both]
    files.write(table_of(finished.run.study(), trials, {}, finished.run.fingerprint), path)
    return path


def write(finished: Finished, rows: Sequence[Row], summary: Sequence[str], tables: Path = TABLES) -> tuple[Path, Path]:
    """(Table, summary) as files; the table is compressed where it would be larger than ``MOST_BYTES``.

    Args:
        finished: what they are made of.
        rows: of the trials.
        summary: lines of Markdown; ``{table}`` stands for the table's file name.
        tables: the folder of recorded tables.
    """
    folder = folder_of(finished, tables)
    folder.mkdir(parents=True, exist_ok=True)
    name = name_of(finished)
    lines = [header(finished), *({"row": "trial", **row} for row in rows)]
    data = "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines).encode()
    path = folder / f"{name}.jsonl"
    if len(data) > MOST_BYTES:
        path, data = folder / f"{name}.jsonl.gz", gzip.compress(data, mtime=0)
    path.write_bytes(data)
    words = folder / f"{name}.md"
    words.write_text("\n".join(summary).replace("{table}", path.name) + "\n", encoding="utf-8")
    return path, words
