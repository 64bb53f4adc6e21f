"""Reads and writes files of recorded tables: a JSON line for the header and one for each row, compressed if the name
ends in ``.gz``.

``read`` returns what ``write`` wrote. An unreadable file gives one sentence naming the file and the line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from autotune.domain import Configuration, CycleRecord, Outcome, Trial
from autotune.errors import UsageError
from autotune.tables.reader import FORMAT, MAPPINGS, PLAIN, header_of, object_of, row_of
from autotune.tables.table import VERSION, Header, RecordedTable, TableRow
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_key
from trainer.child.contract import ContractError, encode

Value = TypeVar("Value")

SUFFIXES = (".jsonl", ".jsonl.gz")
MOST_BYTES = 1 << 30
"""Largest text of a table, in bytes, so that decompression always ends."""


def write(table: RecordedTable, path: Path) -> None:
    """Writes a table to a file, either whole or not at all.

    Raises:
        UsageError: the file cannot be written, or its name has another ending.
    """
    if not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: a table's name ends in {' or '.join(SUFFIXES)}")
    data = "".join(line + "\n" for line in lines(table)).encode()
    whole = gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(whole)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


def lines(table: RecordedTable) -> list[str]:
    """Returns the lines of the file, without line ends."""
    documents = [header_json(table.header), *(row_json(row, table.header) for row in table.rows)]
    return [json.dumps(d, allow_nan=False, separators=(",", ":"), ensure_ascii=False) for d in documents]


def header_json(header: Header) -> dict[str, Any]:
    """Converts the header to the JSON of the first line."""
    return {
        "row": "header",
        "format": FORMAT,
        "version": VERSION,
        **{name: getattr(header, name) for name in PLAIN},
        **{name: encode(getattr(header, name)) for name in MAPPINGS},
        "resources": header.resources.as_json(),
        "baseline": dict(header.baseline),
        "protocol": encode(header.protocol),
    }


def row_json(row: TableRow, header: Header) -> dict[str, Any]:
    """Converts a row to JSON. The restart keys are included so that other programs can replay the table."""
    key = {
        "process": dict(restart_key(row.configuration, Restart.ENGINE, header.framework)),
        "engine": dict(restart_key(row.configuration, Restart.NONE, header.framework)),
    }
    return {
        "row": "trial",
        "configuration": dict(row.configuration),
        "same_learning": row.same_learning,
        "restart_key": key,
        **_run_json(row.trial, header),
        "worst_case": encode(row.worst_case),
        "repeats": [_run_json(run, header) for run in row.repeats],
    }


def _run_json(trial: Trial, header: Header) -> dict[str, Any]:
    outcome = trial.outcome or Outcome()
    return {
        "number": trial.number,
        "kind": trial.kind.value,
        "state": trial.state.value,
        "attempt": trial.attempt,
        "source": trial.source,
        "rows_per_update": trial.rows_per_update,
        "natural_cycles": trial.protocol.natural,
        "outcome": {n: encode(getattr(outcome, n)) for n in ("reason", "phase", "pool", "message", "fresh")},
        "tokens_per_hour": trial.tokens_per_hour,
        "cycles": [_cycle_json(cycle, header) for cycle in trial.cycles],
        "startup": dict(trial.startup),
        "worst_case_passed": trial.worst_case_passed,
        "host_peak": trial.watchdog_peak,
        "started_at": trial.started_at,
        "finished_at": trial.finished_at,
        "seconds": trial.seconds,
    }


def _cycle_json(cycle: CycleRecord, header: Header) -> dict[str, Any]:
    """Converts a cycle to JSON; ``lengths`` is ``null`` if the cycle has the recorded lengths."""
    data: dict[str, Any] = encode(cycle)
    if cycle.lengths == header.lengths:
        data["lengths"] = None
    return data


def read(path: Path) -> RecordedTable:
    """Reads the table in a file.

    Raises:
        UsageError: one sentence with the file, the line and the expected value.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            with gzip.open(path) as stream:
                data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"{path}: more than {MOST_BYTES >> 20} MiB, which no table has")
        text = data.decode("utf-8").split("\n")
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no table: it is not text in UTF-8") from None
    return parsed(text, str(path), _stem(path))


def parsed(text: Sequence[str], source: str, name: str = "") -> RecordedTable:
    """Parses the lines of a table file, skipping empty ones. Raises ``UsageError``, which calls the file ``source``."""
    numbered = [(number, line) for number, line in enumerate(text, start=1) if line]
    if not numbered:
        raise UsageError(f"{source} is no table: it is empty")
    header = _at(source, numbered[0][0], lambda: header_of(object_of(numbered[0][1])))
    rows: dict[Configuration, TableRow] = {}
    for number, line in numbered[1:]:
        row = _at(source, number, partial(_read_row, line, header))
        if row.configuration in rows:
            raise UsageError(f"{source}, line {number}: the configuration of an earlier line again")
        rows[row.configuration] = row
    if header.baseline not in rows:
        raise UsageError(f"{source}: no row has the baseline's configuration")
    return RecordedTable(header, tuple(rows.values()), name)


def _read_row(line: str, header: Header) -> TableRow:
    return row_of(object_of(line), header)


def _at(source: str, number: int, read_it: Callable[[], Value]) -> Value:
    try:
        return read_it()
    except KeyError as error:
        raise UsageError(f"{source}, line {number}: {error.args[0]} is missing") from None
    except (ContractError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{source}, line {number}: {error}") from None


def _stem(path: Path) -> str:
    return next((path.name.removesuffix(s) for s in reversed(SUFFIXES) if path.name.endswith(s)), path.name)
