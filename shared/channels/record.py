"""What channels take and give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from shared.domain.clock import Clock
from shared.domain.mail_server import MailServer
from shared.domain.notification import Notification, Words
from shared.domain.spec import Strict
from shared.http.door import Door


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One notification for one channel. ``id`` stays the same over all attempts, so that receivers can tell."""

    id: UUID
    notification: Notification
    words: Words


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the service answered: a status where the protocol has one, and the beginning of its text."""

    status_code: int | None = None
    excerpt: str | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What sending needs.

    ``mail_server`` and ``mail_from`` are the operator's, for channels without a server of their own. Its address
    was chosen by the operator, so ``trusted_door`` opens it wherever it is.
    """

    door: Door
    trusted_door: Door
    clock: Clock
    timeout_seconds: float = 15.0
    mail_server: MailServer | None = None
    mail_from: str | None = None
    allow_apprise: bool = False


class Render(Protocol):
    """Pure: what will be sent, from the configuration and the notification alone."""

    def __call__(self, config: Any, outgoing: Outgoing, /) -> Any: ...


class Send(Protocol):
    """Send what ``render`` made; raises ``TemporaryError`` and ``PermanentError``. The caller sets the deadline."""

    async def __call__(self, config: Any, message: Any, tools: Tools, /) -> Receipt: ...


@dataclass(frozen=True, slots=True)
class ChannelKind:
    """One kind of channel. ``destination`` names where it leads without its secrets."""

    kind: str
    config: type[Strict]
    render: Render
    send: Send
    destination: Callable[[Any], str]
