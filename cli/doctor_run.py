"""All checks of one installation: first what lies here, then the servers, then what is in them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from cli import doctor_place as place
from shared.contracts.sealing import Sealer
from shared.db.errors import DatabaseError
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.errors import ConnectFailedError
from shared.services.doctor.database import database_checks, usable
from shared.services.doctor.findings import Check, Finding, Outcome, examine
from shared.services.doctor.queue import durability, queue_checks, ready
from shared.services.doctor.work import work_checks
from shared.settings import CommonSettings, ConfigurationError, DatabaseSettings, SealingSettings, Settings, load

CONNECT_SECONDS: Final = 4.0
_UP: Final = "tocsin up"
_LoadedSettings = TypeVar("_LoadedSettings", bound=Settings)


class Examination:
    """One look at an installation.

    ``data_dir`` is that of ``tocsin up``, None for servers that others run; ``servers_only`` leaves out what only
    holds while everything runs.
    """

    def __init__(
        self, environment: Mapping[str, str], data_dir: Path | None, clock: Clock, *, servers_only: bool = False
    ) -> None:
        self._environment, self._data_dir, self._clock = environment, data_dir, clock
        self._servers_only = servers_only

    async def run(self) -> list[Outcome]:
        outcomes = await examine(self._local_checks())
        if any(outcome.name == _UP and outcome.findings for outcome in outcomes):
            return [*outcomes, Outcome("the servers and what they hold", skipped="they do not run")]
        async with AsyncExitStack() as stack:
            (of_database, database), (of_nats, connection) = await asyncio.gather(
                self._reach_database(stack), self._reach_nats(stack)
            )
            outcomes += [of_database, of_nats]
            if not self._servers_only:
                outcomes += await self._look_inside(database, connection)
        return outcomes

    def _local_checks(self) -> dict[str, Check]:
        checks: dict[str, Check] = {
            "settings": place.settings,
            "unread variables": partial(place.unread_variables, self._environment),
        }
        if self._data_dir:
            checks |= {_UP: partial(place.is_up, self._data_dir), "disk": partial(place.disk, self._data_dir)}
        return checks

    async def _reach_database(self, stack: AsyncExitStack) -> tuple[Outcome, Database | None]:
        name = "PostgreSQL"
        settings = _loaded(DatabaseSettings)
        if settings is None:
            return Outcome(name, skipped="its settings cannot be used"), None
        try:
            database = Database(settings.database_url.get_secret_value(), application_name="tocsin-doctor")
        except DatabaseError as error:
            return Outcome(name, (Finding(str(error), "write it as shown"),)), None
        stack.push_async_callback(database.close)
        [outcome] = await examine({name: partial(usable, database)})
        return outcome, None if outcome.findings else database

    async def _reach_nats(self, stack: AsyncExitStack) -> tuple[Outcome, NatsConnection | None]:
        name = "NATS"
        settings = _loaded(CommonSettings)
        if settings is None:
            return Outcome(name, skipped="its settings cannot be used"), None
        try:
            connection = await connect(
                settings.nats_url, name="tocsin-doctor", buffer_writes=False, deadline=CONNECT_SECONDS
            )
        except ConnectFailedError as error:
            problem, _, mend = str(error).rpartition(": ")
            return Outcome(name, (Finding(problem, f"{mend} and the server"),)), None
        stack.push_async_callback(connection.close)
        [outcome] = await examine({name: partial(ready, connection)})
        return outcome, None if outcome.findings else connection

    async def _look_inside(self, database: Database | None, connection: NatsConnection | None) -> list[Outcome]:
        checks: dict[str, Check] = {}
        left_out = []
        if database:
            checks |= database_checks(database, _sealer(), self._clock)
            if self._data_dir:
                checks["API key of tocsin up"] = partial(place.credentials, self._data_dir, database)
        else:
            left_out.append(Outcome("what PostgreSQL holds", skipped="PostgreSQL cannot be used"))
        if connection:
            checks |= queue_checks(connection, load(CommonSettings).nats_replicas, self._clock)
            if not self._data_dir:
                checks["durability of NATS"] = durability
        else:
            left_out.append(Outcome("what NATS holds", skipped="NATS cannot be used"))
        if database and connection:
            checks |= work_checks(database, connection, self._clock)
        else:
            left_out.append(Outcome("whether work is done", skipped="that takes both servers"))
        return [*await examine(checks), *left_out]


def _loaded(settings: type[_LoadedSettings]) -> _LoadedSettings | None:
    """None for settings that are wrong: the check of the settings says which."""
    try:
        return load(settings)
    except ConfigurationError:
        return None


def _sealer() -> Sealer | None:
    settings = _loaded(SealingSettings)
    return Sealer([key.get_secret_value() for key in settings.secret_keys]) if settings else None
