"""How alembic reaches the database: one migrator at a time, and none of them waits long for a table."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from alembic import context
from sqlalchemy import Connection, pool, text
from sqlalchemy.ext.asyncio import create_async_engine

from shared.db import models
from shared.db.engine import parse_url
from shared.db.migrate import Patience

# An arbitrary number, the same in every release: two migrators of one database exclude each other.
MIGRATION_LOCK = 7_226_001
METADATA = models.Monitor.metadata
PARTITIONS = "check_results_"


def database_url() -> str:
    return str(context.config.attributes.get("url") or os.environ.get("TOCSIN_DATABASE_URL", ""))


def include_name(name: str | None, kind: str, parents: Any) -> bool:
    """Daily partitions come and go; they are not part of the schema that is compared."""
    if kind == "table":
        return not (name or "").startswith(PARTITIONS)
    return not str(parents.get("table_name") or "").startswith(PARTITIONS)


def set_timeout(connection: Connection, name: str, seconds: float) -> None:
    values = {"name": name, "milliseconds": str(round(seconds * 1000))}
    connection.execute(text("SELECT set_config(:name, :milliseconds, false)"), values)


def migrate(connection: Connection) -> None:
    patience = context.config.attributes.get("patience", Patience())
    set_timeout(connection, "statement_timeout", patience.statement)
    # Waiting for another migrator is fine; queueing behind a long query would stop everybody behind us.
    connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": MIGRATION_LOCK})
    set_timeout(connection, "lock_timeout", patience.lock)
    connection.commit()
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        include_name=include_name,
        transaction_per_migration=True,
        on_version_apply=context.config.attributes.get("on_version_apply"),
    )
    with context.begin_transaction():
        context.run_migrations()


async def run() -> None:
    engine = create_async_engine(parse_url(database_url()), poolclass=pool.NullPool)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
    finally:
        await engine.dispose()


asyncio.run(run())
