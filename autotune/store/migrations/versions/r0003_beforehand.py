"""What a search knows before its first trial; of studies that are there already, nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column, empty."""
    op.add_column("studies", sa.Column("beforehand", sa.Text(), nullable=True))
