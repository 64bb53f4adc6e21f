"""The first tables. Their constraints get the names of ``Base.metadata``'s convention."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text()
NUMBER: sa.Double[float] = sa.Double()
FLAG = sa.Boolean()


def upgrade() -> None:
    """Make every table, those that are pointed to first."""
    _studies()
    _ledger()
    _results()
    _trials()
    _attempts()
    _cycles()


def _key() -> sa.Column[int]:
    return sa.Column("id", WHOLE, primary_key=True)


def _of(table: str, name: str, *, key: bool = False, index: bool = False) -> sa.Column[int]:
    """The column that says which row of ``table`` a row belongs to; with ``key`` it is of the primary key."""
    return sa.Column(name, WHOLE, sa.ForeignKey(f"{table}.id"), primary_key=key, index=index, nullable=False)


def _columns(
    kind: sa.types.TypeEngine[Any], *names: str, primary_key: bool = False, unique: bool = False, nullable: bool = False
) -> list[sa.Column[Any]]:
    """Columns of one kind that stand side by side."""
    return [sa.Column(name, kind, primary_key=primary_key, unique=unique, nullable=nullable) for name in names]


def _studies() -> None:
    op.create_table(
        "studies",
        _key(),
        *_columns(TEXT, "name", unique=True),
        *_columns(TEXT, "digest", "spec", "status", "lengths"),
        *_columns(WHOLE, "revision"),
        *_columns(NUMBER, "created_at"),
    )


def _ledger() -> None:
    op.create_table(
        "events",
        _of("studies", "study_id", key=True),
        sa.Column("id", WHOLE, primary_key=True, autoincrement=False),
        *_columns(TEXT, "kind"),
        *_columns(WHOLE, "trial", nullable=True),
        *_columns(NUMBER, "at"),
        *_columns(TEXT, "message", "data"),
    )
    op.create_table(
        "sessions",
        _key(),
        _of("studies", "study_id", index=True),
        *_columns(NUMBER, "started_at", "updated_at", "wall_s", "gpu_s"),
    )


def _results() -> None:
    op.create_table(
        "fingerprints",
        _key(),
        _of("studies", "study_id", index=True),
        *_columns(TEXT, "digest", "body"),
        *_columns(NUMBER, "created_at"),
    )
    op.create_table(
        "recommendations",
        _key(),
        _of("studies", "study_id", index=True),
        *_columns(TEXT, "body"),
        *_columns(NUMBER, "created_at"),
    )


def _trials() -> None:
    op.create_table(
        "trials",
        _key(),
        _of("studies", "study_id"),
        *_columns(WHOLE, "number"),
        *_columns(TEXT, "kind", "state"),
        *_columns(WHOLE, "attempt"),
        *_columns(TEXT, "configuration", "protocol"),
        *_columns(WHOLE, "rows_per_update"),
        *_columns(WHOLE, "pair", nullable=True),
        *_columns(TEXT, "source"),
        *_columns(TEXT, "outcome", nullable=True),
        *_columns(WHOLE, "host_peak", nullable=True),
        *_columns(NUMBER, "created_at"),
        *_columns(NUMBER, "finished_at", nullable=True),
        sa.UniqueConstraint("study_id", "number"),
    )
    op.create_table(
        "attempts",
        _key(),
        _of("trials", "trial_id"),
        *_columns(WHOLE, "number"),
        *_columns(NUMBER, "started_at"),
        *_columns(NUMBER, "seconds", nullable=True),
        sa.UniqueConstraint("trial_id", "number"),
    )


def _attempts() -> None:
    op.create_table(
        "startup_parts",
        _of("attempts", "attempt_id", key=True),
        *_columns(TEXT, "part", primary_key=True),
        *_columns(NUMBER, "seconds"),
    )
    op.create_table(
        "worst_cases",
        _of("attempts", "attempt_id", key=True),
        *_columns(TEXT, "record"),
    )
    op.create_table(
        "notes",
        _key(),
        _of("attempts", "attempt_id", index=True),
        *_columns(TEXT, "record"),
    )


def _cycles() -> None:
    op.create_table(
        "cycles",
        _key(),
        _of("attempts", "attempt_id"),
        *_columns(WHOLE, "rank", "position"),
        *_columns(TEXT, "cycle_kind"),
        *_columns(NUMBER, "seconds"),
        *_columns(WHOLE, "completion_tokens", "prompt_tokens", "computed_tokens", "row_count", "updates"),
        *_columns(FLAG, "accepted", "noisy"),
        *_columns(NUMBER, "started"),
        *_columns(TEXT, "rest"),
        sa.UniqueConstraint("attempt_id", "rank", "position"),
    )
    op.create_table(
        "phases",
        _of("cycles", "cycle_id", key=True),
        *_columns(TEXT, "phase", primary_key=True),
        *_columns(NUMBER, "seconds", nullable=True),
        *_columns(FLAG, "has_peaks"),
        *_columns(WHOLE, "device_allocated", "device_reserved", "device_used", "host", nullable=True),
    )
