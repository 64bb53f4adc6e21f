"""Finished trials as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.domain import (
    Configuration,
    CycleRecord,
    FailureReason,
    Outcome,
    Pool,
    Protocol,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.errors import UsageError
from trainer.child.contract import ContractError, decode, encode, iter_complete_lines

Row = dict[str, Any]


def rows(path: Path) -> Iterator[Row]:
    """Whole lines in order; a line that is no JSON object was torn by a kill and is passed over."""
    for line in iter_complete_lines(path.read_bytes()) if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def row_of(trial: Trial, role: str) -> Row:
    """A finished trial as plain data; lengths of the cycles are left out, as every speed cycle has the study's."""
    outcome = trial.outcome or Outcome()
    return {
        "number": trial.number,
        "role": role,
        "kind": trial.kind.value,
        "state": trial.state.value,
        "pair": trial.pair,
        "configuration": dict(trial.configuration),
        "protocol": encode(trial.protocol),
        "rows_per_update": trial.rows_per_update,
        "outcome": {name: encode(getattr(outcome, name)) for name in ("reason", "phase", "pool", "message")},
        "tokens_per_hour": trial.tokens_per_hour,
        "cycles": [{**encode(cycle), "lengths": []} for cycle in trial.cycles],
        "startup": dict(trial.startup),
        "worst_case_passed": trial.worst_case_passed,
        "host_peak": trial.watchdog_peak,
        "started_at": trial.started_at,
        "finished_at": trial.finished_at,
        "seconds": trial.seconds,
    }


def trial_of(row: Row, where: str) -> Trial:
    """The trial ``row_of`` wrote. Raises ``UsageError`` if it is none."""
    try:
        said = row["outcome"]
        outcome = Outcome(
            reason=None if said["reason"] is None else FailureReason(said["reason"]),
            phase=said["phase"],
            pool=None if said["pool"] is None else Pool(said["pool"]),
            message=said["message"],
        )
        return Trial(
            study_id=1,
            number=row["number"],
            kind=TrialKind(row["kind"]),
            configuration=Configuration(row["configuration"]),
            protocol=decode(Protocol, row["protocol"]),
            rows_per_update=row["rows_per_update"],
            state=TrialState(row["state"]),
            attempt=1,
            pair=row["pair"],
            outcome=outcome,
            cycles=tuple(decode(CycleRecord, cycle) for cycle in row["cycles"]),
            startup=row["startup"],
            worst_case_passed=row["worst_case_passed"],
            watchdog_peak=row["host_peak"],
            started_at=row["started_at"],
            finished_at=row["finished_at"],
            seconds=row["seconds"],
        )
    except (KeyError, TypeError, ValueError, ContractError) as error:
        raise UsageError(f"{where}: a line is no trial of this benchmark ({error})") from None
