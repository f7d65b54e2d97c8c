"""The API over a real PostgreSQL with a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from api.app import create_app
from api.context import Context
from shared.contracts.sealing import Sealer
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.observability.health import Health
from shared.services.api_keys import Scope
from shared.testing.clock import FakeClock
from tests.integration.api.conftest import SECRET_KEY, PlayedDesk, Tenant, add_key, client
from tests.integration.db.tenants import add_organisation

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> FakeClock:
    """At noon of tomorrow at first: the age of API keys is looked at too, and a night's window must not be open."""
    return FakeClock((SystemClock().now_ms() // DAY_MS + 1) * DAY_MS + DAY_MS // 2)


@pytest.fixture
async def tenant(database: Database, clock: FakeClock) -> AsyncIterator[Tenant]:
    context = Context(database, Sealer([SECRET_KEY]), clock, PlayedDesk())
    async with client(create_app(context, Health({}))) as opened:
        organisation_id = await add_organisation(database, "alice")
        key = await add_key(database, organisation_id, Scope.ADMIN)
        opened.headers["Authorization"] = f"Bearer {key}"
        yield Tenant(organisation_id, opened)
