"""The way into PostgreSQL: a transaction bound to one tenant, or one of the system."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from shared.db.base import APP_ROLE, SYSTEM_ROLE, TENANT_SETTING
from shared.db.engine import PoolOptions, create_engine
from shared.db.verify import verify_engine

_BIND_TENANT = text("SELECT set_config(:setting, :organisation_id, true)")


class Database:
    """Two pools on one server: ``tocsin_app`` sees one tenant, ``tocsin_system`` sees all of them.

    The login role itself is used for nothing: each connection takes its role while it is being made, so no
    query can run before row-level security binds it. Connections are made when first needed.
    """

    def __init__(self, url: str, *, application_name: str, pool: PoolOptions | None = None) -> None:
        options = pool or PoolOptions()
        self._app = create_engine(url, APP_ROLE, application_name, options)
        self._system = create_engine(url, SYSTEM_ROLE, application_name, options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._app.dispose()
        await self._system.dispose()

    @asynccontextmanager
    async def tenant(self, organisation_id: UUID) -> AsyncIterator[AsyncSession]:
        """One transaction that sees and writes rows of this organisation only; committed on leaving."""
        async with _transaction(self._app) as session:
            # Transaction-local: a connection that goes back to the pool carries no tenant.
            await session.execute(
                _BIND_TENANT, {"setting": TENANT_SETTING, "organisation_id": str(organisation_id)}
            )
            yield session

    @asynccontextmanager
    async def system(self) -> AsyncIterator[AsyncSession]:
        """One transaction across tenants, for the platform's own work; committed on leaving."""
        async with _transaction(self._system) as session:
            yield session

    async def ping(self) -> None:
        """One round trip; raises what the driver raises when the server does not answer."""
        async with self._system.connect() as connection:
            await connection.execute(text("SELECT 1"))

    async def verify(self) -> None:
        """Raise ``DatabaseUnusableError``, with the mend, unless this server can be worked with."""
        await verify_engine(self._system)
        await verify_engine(self._app)


@asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[AsyncSession]:
    # Nothing expires on commit: entities may be read after the transaction without another query.
    async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
        yield session
