"""A workload has several rewards, a study keeps the text of the user's own configuration, and writers have receipts."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the table of receipts, and rewrite every study's specification."""
    op.create_table(
        "receipts",
        sa.Column("writer", sa.Text(), nullable=False),
        sa.Column("ticket", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.PrimaryKeyConstraint("writer", name="pk_receipts"),
    )
    studies = sa.table("studies", sa.column("id"), sa.column("spec"))
    connection = op.get_bind()
    for study, text in connection.execute(sa.select(studies.c.id, studies.c.spec)).all():
        changed = json.dumps(_rewritten(json.loads(text)), sort_keys=True, separators=(",", ":"))
        connection.execute(studies.update().where(studies.c.id == study).values(spec=changed))


def _rewritten(spec: dict[str, Any]) -> dict[str, Any]:
    workload = dict(spec["workload"])
    workload["rewards"] = [workload.pop("reward")]
    return {**spec, "workload": workload, "user_config": ""}
