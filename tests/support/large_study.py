"""A study of thousands of trials in no time: as values, and as a database where two are stored and the rest copied."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from functools import cache
from typing import Any

from autotune.domain import Study, Trial, TrialKind
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories as f
from tests.support.recorded import record
from tests.support.served import SPACE

FAILS = 5
"""Every fifth trial runs out of memory."""

Row = dict[str, Any]


@cache
def large_trials(count: int = 10_000) -> tuple[Trial, ...]:
    """``count`` configurations; every fifth but the baseline ran out of memory."""
    first, failed = f.finished(0, cycles=2), f.failed(1)
    seconds = [tuple(f.cycle(i, seconds=5.0 + n + i) for i in range(2)) for n in range(97)]
    made = [first]
    for n in range(1, count):
        knobs = f.configuration(micro_batch_size=2 ** (n % 5), logprob_token_chunk=n + 1, x=n % 7, y=n % 11)
        if n % FAILS == 0:
            made.append(failed.with_(number=n, configuration=knobs))
        else:
            made.append(first.with_(number=n, kind=TrialKind.SEARCH, configuration=knobs, cycles=seconds[n % 97]))
    return tuple(made)


def large_study(settings: Settings, count: int = 10_000) -> Study:
    """A study of ``count`` trials with different configurations and speeds; it is still open."""
    store = open_store(settings.database)
    study = store.create_study(f.study_spec("large", space=SPACE.as_json()), f.NOW)
    record(store, study, f.finished(0, cycles=1))
    record(store, study, f.failed(1, configuration=f.configuration(micro_batch_size=8)))
    store.add_event(study.id, f.event("session_started", data={"wall_s": 3600.0, "max_trials": 2 * count}))
    store.spend(store.open_session(study.id, f.NOW), 1200.0, 0.0, f.NOW)
    store.close()
    with sqlite3.connect(settings.home.database) as database:
        database.row_factory = sqlite3.Row
        _fill(database, study.id, count)
        database.execute("UPDATE studies SET revision = revision + 1 WHERE id = ?", (study.id,))
    database.close()
    store = open_store(settings.database)
    found = store.study(study.id)
    store.close()
    return found


def _fill(database: sqlite3.Connection, study: int, count: int) -> None:
    query = "SELECT * FROM trials WHERE study_id = ? ORDER BY number"
    first, second = (dict(row) for row in database.execute(query, (study,)))
    templates = [_template(database, trial) for trial in (first, second)]
    for table in ("trials", "attempts", "worst_cases", "cycles"):
        rows = (row for n in range(2, count) for row in _copies(templates[n % FAILS == 0], table, n))
        _insert(database, table, rows)


def _template(database: sqlite3.Connection, trial: Row) -> dict[str, list[Row]]:
    """Everything of a trial, by table."""

    def of(query: str, *values: object) -> list[Row]:
        return [dict(row) for row in database.execute(query, values)]

    attempts = of("SELECT * FROM attempts WHERE trial_id = ?", trial["id"])
    attempt = attempts[0]["id"]
    return {
        "trials": [trial],
        "attempts": attempts,
        "worst_cases": of("SELECT * FROM worst_cases WHERE attempt_id = ?", attempt),
        "cycles": of("SELECT * FROM cycles WHERE attempt_id = ?", attempt),
    }


def _copies(template: dict[str, list[Row]], table: str, number: int) -> Iterator[Row]:
    """The rows of a table for trial ``number``; ids far from those that are there."""
    own = 1_000_000 + number
    for row in template[table]:
        made = dict(row)
        for name in ("id", "trial_id", "attempt_id"):
            if name in made:
                made[name] = own
        if table == "trials":
            settings = {"logprob_token_chunk": number + 1, "micro_batch_size": 2 ** (number % 4)}
            changed = {**json.loads(row["configuration"]), **settings, "precision": ("fp32", "bf16")[number % 2]}
            made |= {"number": number, "kind": "search", "configuration": json.dumps(changed, sort_keys=True)}
            made |= {"created_at": f.NOW + number, "finished_at": f.NOW + number + 1}
        if table == "cycles":
            made["record"] = json.dumps({**json.loads(row["record"]), "seconds": 5.0 + (number * 7919 % 1000) / 100})
        yield made


def _insert(database: sqlite3.Connection, table: str, rows: Iterator[Row]) -> None:
    first = next(rows, None)
    if first is None:
        return
    names = list(first)
    marks = ", ".join("?" for _ in names)
    query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - our own names
    database.execute(query, [first[n] for n in names])
    database.executemany(query, ([row[n] for n in names] for row in rows))
