"""A queue that a test answers for: what was published, and acknowledgements given or refused by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from shared.messaging.errors import MessagingError


@dataclass(slots=True)
class Published:
    """One message with its open acknowledgement."""

    subject: str
    payload: bytes
    message_id: str
    acknowledgement: asyncio.Future[Any]

    def acknowledge(self) -> None:
        self.acknowledgement.set_result(None)

    def refuse(self, error: MessagingError) -> None:
        self.acknowledgement.set_exception(error)


@dataclass(slots=True)
class FakeSender:
    """Keeps what is published."""

    published: list[Published] = field(default_factory=list)
    has_room: bool = True

    async def publish(self, subject: str, payload: bytes, *, message_id: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.published.append(Published(subject, payload, message_id, future))
        return future

    def take(self) -> list[Published]:
        """What was published since the last call."""
        taken, self.published = self.published, []
        return taken
