"""Is this the server, schema and role that the code needs? Asked once at start, answered in one line."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from shared.db.base import SCHEMA_REVISION
from shared.db.errors import DatabaseUnusableError, sqlstate

MIN_SERVER_VERSION = 15
# A role named at connection time that does not exist, or that the login role may not take.
_ROLE_REFUSED = ("22023", "42501")

_FACTS = text("""
    SELECT current_setting('server_version_num')::int / 10000 AS version, current_user AS role,
           (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS bypasses,
           to_regclass('alembic_version') IS NOT NULL AS migrated
""")
_REVISION = text("SELECT max(version_num) FROM alembic_version")


async def verify_engine(engine: AsyncEngine) -> None:
    """Raise ``DatabaseUnusableError`` unless the server answers, is new enough, migrated, and binds our role."""
    try:
        async with engine.connect() as connection:
            await _verify(connection)
    except (OSError, SQLAlchemyError) as error:
        raise _explained(engine, error) from error


async def _verify(connection: AsyncConnection) -> None:
    facts = (await connection.execute(_FACTS)).one()
    if facts.version < MIN_SERVER_VERSION:
        raise DatabaseUnusableError(
            f"PostgreSQL {facts.version} is too old", f"Tocsin needs {MIN_SERVER_VERSION} or newer"
        )
    if facts.bypasses:
        raise DatabaseUnusableError(
            f"role {facts.role} bypasses row-level security",
            f"run ALTER ROLE {facts.role} NOSUPERUSER NOBYPASSRLS",
        )
    revision = (await connection.execute(_REVISION)).scalar() if facts.migrated else None
    if revision is None or revision < SCHEMA_REVISION:
        raise DatabaseUnusableError(
            f"the schema is at {revision or 'nothing'}, this release needs {SCHEMA_REVISION}", "run tocsin migrate"
        )


def _explained(engine: AsyncEngine, error: Exception) -> DatabaseUnusableError:
    place = engine.url.render_as_string(hide_password=True)
    original = error.orig if isinstance(error, DBAPIError) else error
    if sqlstate(error) in _ROLE_REFUSED:
        return DatabaseUnusableError(
            f"{original}",
            "run tocsin migrate as a role that may create roles, or see its message for the statements",
        )
    return DatabaseUnusableError(
        f"cannot use PostgreSQL at {place}: {original or error}", "check TOCSIN_DATABASE_URL and the server"
    )
