"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

WHOLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make every table, those that are pointed to first."""
    _studies()
    _ledger()
    _results()
    _trials()
    _attempts()
    _cycles()


def _studies() -> None:
    op.create_table(
        "studies",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("lengths", sa.Text(), nullable=False),
        sa.Column("revision", WHOLE, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_studies"),
        sa.UniqueConstraint("name", name="uq_studies_name"),
    )


def _ledger() -> None:
    op.create_table(
        "events",
        sa.Column("study_id", WHOLE, nullable=False),
        sa.Column("id", WHOLE, autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("trial", WHOLE, nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_events_study_id"),
        sa.PrimaryKeyConstraint("study_id", "id", name="pk_events"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("study_id", WHOLE, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("gpu_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_sessions_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
    )
    op.create_index("ix_sessions_study_id", "sessions", ["study_id"], unique=False)


def _results() -> None:
    op.create_table(
        "fingerprints",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("study_id", WHOLE, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_fingerprints_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_fingerprints"),
    )
    op.create_index("ix_fingerprints_study_id", "fingerprints", ["study_id"], unique=False)
    op.create_table(
        "recommendations",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("study_id", WHOLE, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_recommendations_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_recommendations"),
    )
    op.create_index("ix_recommendations_study_id", "recommendations", ["study_id"], unique=False)


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("study_id", WHOLE, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempt", WHOLE, nullable=False),
        sa.Column("configuration", sa.Text(), nullable=False),
        sa.Column("protocol", sa.Text(), nullable=False),
        sa.Column("rows_per_update", WHOLE, nullable=False),
        sa.Column("pair", WHOLE, nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("host_peak", WHOLE, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name="fk_trials_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("study_id", "number", name="uq_trials_study_id_number"),
    )
    op.create_table(
        "attempts",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("trial_id", WHOLE, nullable=False),
        sa.Column("number", WHOLE, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["trial_id"], ["trials.id"], name="fk_attempts_trial_id"),
        sa.PrimaryKeyConstraint("id", name="pk_attempts"),
        sa.UniqueConstraint("trial_id", "number", name="uq_attempts_trial_id_number"),
    )


def _attempts() -> None:
    op.create_table(
        "startup_parts",
        sa.Column("attempt_id", WHOLE, nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_startup_parts_attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", "part", name="pk_startup_parts"),
    )
    op.create_table(
        "worst_cases",
        sa.Column("attempt_id", WHOLE, nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_worst_cases_attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_worst_cases"),
    )
    op.create_table(
        "notes",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("attempt_id", WHOLE, nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_notes_attempt_id"),
        sa.PrimaryKeyConstraint("id", name="pk_notes"),
    )
    op.create_index("ix_notes_attempt_id", "notes", ["attempt_id"], unique=False)


def _cycles() -> None:
    op.create_table(
        "cycles",
        sa.Column("id", WHOLE, nullable=False),
        sa.Column("attempt_id", WHOLE, nullable=False),
        sa.Column("rank", WHOLE, nullable=False),
        sa.Column("position", WHOLE, nullable=False),
        sa.Column("cycle_kind", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("completion_tokens", WHOLE, nullable=False),
        sa.Column("prompt_tokens", WHOLE, nullable=False),
        sa.Column("computed_tokens", WHOLE, nullable=False),
        sa.Column("row_count", WHOLE, nullable=False),
        sa.Column("updates", WHOLE, nullable=False),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("noisy", sa.Boolean(), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        sa.Column("rest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempts.id"], name="fk_cycles_attempt_id"),
        sa.PrimaryKeyConstraint("id", name="pk_cycles"),
        sa.UniqueConstraint("attempt_id", "rank", "position", name="uq_cycles_attempt_id_rank_position"),
    )
    op.create_table(
        "phases",
        sa.Column("cycle_id", WHOLE, nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("has_peaks", sa.Boolean(), nullable=False),
        sa.Column("device_allocated", WHOLE, nullable=True),
        sa.Column("device_reserved", WHOLE, nullable=True),
        sa.Column("device_used", WHOLE, nullable=True),
        sa.Column("host", WHOLE, nullable=True),
        sa.ForeignKeyConstraint(["cycle_id"], ["cycles.id"], name="fk_phases_cycle_id"),
        sa.PrimaryKeyConstraint("cycle_id", "phase", name="pk_phases"),
    )
