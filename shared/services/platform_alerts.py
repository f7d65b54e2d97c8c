"""Trouble of the platform itself, as incidents of the organisation that runs it: told through its channels.

There is one open alert per key, however many processes see the same trouble and however often. Each of them says
again and again that it still does; an alert is over when nobody has said so for a minute. So processes that see
different things do not open and close it in turns, and one that dies leaves none open for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from shared.db.base import new_id
from shared.db.repositories import escalations, incidents, suspicion
from shared.db.session import Database
from shared.domain import incident as machine
from shared.domain.clock import Clock, to_datetime
from shared.domain.incident import Incident, IncidentKind, Severity
from shared.domain.notification import one_line, shortened
from shared.jobs.silence import SilenceMonitor
from shared.messaging.cancellation import is_cancelled
from shared.messaging.errors import MessagingError
from shared.services.watchdog import Watchdog
from shared.tasks.dead_letters import DeadLetterDesk
from shared.tasks.letters import DeadLetter

log = structlog.get_logger(__name__)

PLATFORM_ALERT: Final = "platform_alert"
"""The cause of these incidents; the key is in their column ``worker``."""
MESSAGE_LIMIT: Final = 500
LOOK_SECONDS: Final = 5.0
OVER_AFTER_MS: Final = 60_000
TELL_AFTER_SECONDS: Final = 10.0
DEAD_LETTERS: Final = "dead letters: "

_SERVER_ERRORS = (SQLAlchemyError, MessagingError, NatsError, OSError)

Troubles = Callable[[], Awaitable[Mapping[str, str]]]
"""What is wrong right now: a text for each key."""


async def raise_platform_alert(session: AsyncSession, key: str, title: str, detail: str, now_ms: int) -> bool:
    """Open an alert, or say that its trouble lasts; answers whether it is new. For system sessions."""
    if (open_id := await escalations.lock_platform_alert(session, key)) is not None:
        await escalations.touch_platform_alert(session, open_id, to_datetime(now_ms))
        return False
    organisation_id = await suspicion.operator(session)
    if organisation_id is None:
        log.error("nobody runs this platform: an alert reaches nobody", key=key, title=title)
        return False
    incident = Incident(
        id=new_id(),
        organisation_id=organisation_id,
        monitor_id=None,
        kind=IncidentKind.PLATFORM,
        severity=Severity.DOWN,
        cause=PLATFORM_ALERT,
        message=shortened(one_line(f"{title}: {detail}"), MESSAGE_LIMIT),
        started_at_ms=now_ms,
        opened_at_ms=now_ms,
        last_failure_at_ms=now_ms,
        worker=key,
    )
    await incidents.save(session, [incident])
    await incidents.write_events(session, [machine.opened(incident)])
    log.warning("platform alert", key=key, title=title, detail=detail)
    return True


async def clear_platform_alert(session: AsyncSession, key: str, now_ms: int) -> bool:
    """Resolve the alert that is open under this key; False when there is none. For system sessions."""
    incident_id = await escalations.lock_platform_alert(session, key)
    incident = None if incident_id is None else await incidents.lock(session, incident_id)
    if incident is None or not incident.is_open:  # somebody may have ended it while we waited for the lock
        return False
    after, event = machine.resolved(incident, now_ms, now_ms)
    await incidents.save(session, [after])
    await incidents.write_events(session, [event])
    log.info("platform alert is over", key=key)
    return True


class PlatformAlerts:
    """Keeps the platform's alerts in step with what this process sees."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def on_letter(self, letter: DeadLetter) -> None:
        """Work failed for good; one alert per task until its letters are dealt with."""
        async with self._database.system() as session:
            await raise_platform_alert(
                session,
                f"{DEAD_LETTERS}{letter.task}",
                f"Work of the task {letter.task} failed for good",
                f"{letter.error.message}; see the dead letters",
                self._clock.now_ms(),
            )

    async def run(self, *sources: Troubles) -> None:
        """Look every five seconds, until cancelled."""
        while not is_cancelled():
            try:
                await self.look(*sources)
            except _SERVER_ERRORS as error:
                log.warning("alerts of the platform can't be kept", error=str(error).partition("\n")[0])
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self, *sources: Troubles) -> None:
        """Raise what is wrong, and end what nobody has seen for a minute, as far as everybody could be asked."""
        troubles = [await _asked(source) for source in sources]
        now_ms = self._clock.now_ms()
        async with self._database.system() as session:
            for key, detail in sorted((key, detail) for found in troubles for key, detail in (found or {}).items()):
                await raise_platform_alert(session, key, key, detail, now_ms)
            if None in troubles:
                return
            before = to_datetime(now_ms - OVER_AFTER_MS)
            for key in await escalations.stale_platform_alerts(session, PLATFORM_ALERT, before):
                await clear_platform_alert(session, key, now_ms)


async def _asked(source: Troubles) -> Mapping[str, str] | None:
    """None when it cannot be asked: then the others still tell what they see."""
    try:
        return await source()
    except _SERVER_ERRORS as error:
        log.warning("a source of alerts can't be asked", error=str(error).partition("\n")[0])
        return None


def watchdog_troubles(watchdog: Watchdog) -> Troubles:
    """Parts of the work that are not being done."""

    async def look() -> Mapping[str, str]:
        return {f"watchdog: {part}": problem for part, problem in watchdog.lasting(TELL_AFTER_SECONDS).items()}

    return look


def silence_troubles(monitor: SilenceMonitor) -> Troubles:
    """Jobs that have not succeeded for too long."""

    async def look() -> Mapping[str, str]:
        return {
            f"silent job: {name}": f"no success since {silence.since:%Y-%m-%d %H:%M:%S} UTC"
            for name, silence in monitor.silent.items()
        }

    return look


def letter_troubles(desk: DeadLetterDesk) -> Troubles:
    """Dead letters that wait for somebody to deal with them."""

    async def look() -> Mapping[str, str]:
        return {
            f"{DEAD_LETTERS}{task}": f"{number} wait" for task, number in (await desk.count()).items() if number
        }

    return look
