"""What a check finds, and how many checks are made at the same time without one of them holding up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError

from shared.messaging.connect import describe
from shared.messaging.errors import MessagingError

CHECK_SECONDS: Final = 10.0


class Severity(StrEnum):
    """A fault breaks a promise now, a warning will; a note says what cannot be seen from here."""

    NOTE = "note"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong and how it is mended: one line each."""

    what: str
    mend: str
    severity: Severity = Severity.FAULT


Check = Callable[[], Awaitable[list[Finding]]]
Checks = Mapping[str, Check]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check that was made. Without findings, all is well; ``skipped`` says why it could not be made."""

    name: str
    findings: tuple[Finding, ...] = ()
    skipped: str | None = None


async def examine(checks: Checks, seconds: float = CHECK_SECONDS) -> list[Outcome]:
    """Make all checks at the same time, each with so much time of its own; in the order given."""
    return await asyncio.gather(*(_made(name, check, seconds) for name, check in checks.items()))


def skipped(checks: Checks, why: str) -> list[Outcome]:
    """What ``examine`` would answer, had the checks been possible."""
    return [Outcome(name, skipped=why) for name in checks]


async def _made(name: str, check: Check, seconds: float) -> Outcome:
    try:
        async with asyncio.timeout(seconds):
            return Outcome(name, tuple(await check()))
    except TimeoutError:
        return Outcome(name, (Finding(f"no answer within {seconds:g} s", "look at the load of the servers"),))
    except (SQLAlchemyError, NatsError, MessagingError, OSError) as error:
        what = describe(error).partition("\n")[0]
        return Outcome(name, (Finding(f"it could not be looked at: {what}", "look at the logs of the servers"),))
