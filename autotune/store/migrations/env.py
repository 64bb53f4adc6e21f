"""Alembic's entry: the connection comes from the caller, who has begun a transaction on it."""

from __future__ import annotations

from alembic import context

from autotune.store.models import Base
from autotune.store.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    # SQLite's DDL is as transactional as its rows, and the caller's one transaction makes a step all or nothing.
    transactional_ddl=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
