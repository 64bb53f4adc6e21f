"""A study of many made-up trials in a SQLite file, written past the store: through it, it would take an hour."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from autotune.domain import Study
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record

CHILDREN = ("startup_parts", "worst_cases", "cycles")
SIZES = (1, 2, 4, 8)
PRECISIONS = ("fp32", "bf16")
"""What the copies differ in, beside a number that makes each configuration another."""

Row = tuple[Any, ...]


def fill(database: Path, trials: int, seed: int = 0) -> Study:
    """A study with that many finished trials (one in ten ran out of memory), its events and no recommendation."""
    store = open_store(database)
    study = store.create_study(factories.study_spec(), factories.NOW)
    store.save_fingerprint(study.id, factories.fingerprint(), factories.NOW)
    store.set_lengths(study.id, factories.LENGTHS)
    record(store, study, factories.finished(0))
    record(store, study, factories.failed(1))
    store.add_event(study.id, factories.event("session_started", data={"wall_s": 3.6e6}))
    store.close()
    connection = sqlite3.connect(database)
    try:
        _multiply(connection, study.id, trials, random.Random(seed))  # noqa: S311 - made-up figures
        connection.commit()
    finally:
        connection.close()
    store = open_store(database)
    found = store.study(study.id)
    store.close()
    return found


def _multiply(connection: sqlite3.Connection, study: int, trials: int, chance: random.Random) -> None:
    originals = {failed: _original(connection, study, number) for failed, number in ((False, 0), (True, 1))}
    added: dict[str, list[Row]] = {name: [] for name in ("trials", "attempts", *CHILDREN, "phases", "events")}
    new_id = {name: _last_id(connection, name) for name in ("trials", "attempts", "cycles")}
    for number in range(2, trials):
        _copy(originals[number % 10 == 1], number, added, new_id, chance)
    added["events"] = [
        (study, 1 + n, "trial_finished", n, factories.NOW + 60 * n, json.dumps(f"trial {n}: OK"), "{}")
        for n in range(1, trials)
    ]
    for name, rows in added.items():
        if rows:
            marks = ",".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)  # noqa: S608 - names of this file
    connection.execute("UPDATE studies SET revision = revision + ?", (trials,))


class _Original:
    """A trial's rows with the names of their columns."""

    def __init__(self, connection: sqlite3.Connection, trial: int) -> None:
        self.trial = _one(connection, "SELECT * FROM trials WHERE id = ?", trial)
        self.attempt = _one(connection, "SELECT * FROM attempts WHERE trial_id = ?", trial)
        attempt = self.attempt["id"]
        self.children = {
            name: list(_rows(connection, f"SELECT * FROM {name} WHERE attempt_id = ?", attempt))  # noqa: S608
            for name in CHILDREN
        }
        self.phases = {
            c["id"]: list(_rows(connection, "SELECT * FROM phases WHERE cycle_id = ?", c["id"]))
            for c in self.children["cycles"]
        }


def _original(connection: sqlite3.Connection, study: int, number: int) -> _Original:
    found = connection.execute("SELECT id FROM trials WHERE study_id = ? AND number = ?", (study, number)).fetchone()
    return _Original(connection, found[0])


def _copy(
    original: _Original, number: int, added: dict[str, list[Row]], new_id: dict[str, int], chance: random.Random
) -> None:
    size, precision = chance.choice(SIZES), chance.choice(PRECISIONS)
    knobs = factories.configuration(
        micro_batch_size=size,
        gradient_accumulation_steps=factories.ROWS // size,
        precision=precision,
        logprob_token_chunk=number,
    )
    faster = chance.uniform(0.6, 1.4)
    began = factories.NOW + 60 * number
    new_id["trials"] += 1
    new_id["attempts"] += 1
    trial = {
        **original.trial,
        "id": new_id["trials"],
        "number": number,
        "kind": "search",
        "source": "tpe/headline",
        "configuration": knobs.key,
        "created_at": began,
        "finished_at": began + 50 * faster,
    }
    added["trials"].append(tuple(trial.values()))
    attempt = {**original.attempt, "id": new_id["attempts"], "trial_id": new_id["trials"], "started_at": began}
    added["attempts"].append(tuple(attempt.values()))
    for name in ("startup_parts", "worst_cases"):
        added[name] += [tuple({**row, "attempt_id": new_id["attempts"]}.values()) for row in original.children[name]]
    for row in original.children["cycles"]:
        new_id["cycles"] += 1
        cycle = {
            **row,
            "id": new_id["cycles"],
            "attempt_id": new_id["attempts"],
            "seconds": row["seconds"] * faster * chance.uniform(0.98, 1.02),
        }
        added["cycles"].append(tuple(cycle.values()))
        phases = ({**phase, "cycle_id": new_id["cycles"]} for phase in original.phases[row["id"]])
        added["phases"] += [tuple(phase.values()) for phase in phases]


def _rows(connection: sqlite3.Connection, query: str, *values: Any) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(query, values)
    names: Sequence[str] = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def _one(connection: sqlite3.Connection, query: str, *values: Any) -> dict[str, Any]:
    return next(_rows(connection, query, *values))


def _last_id(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT max(id) FROM {table}").fetchone()[0])  # noqa: S608 - names of this file
