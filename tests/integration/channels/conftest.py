"""Notifications worth sending, and certificates from an authority that exists for one test run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
import trustme

from shared.channels.record import Outgoing
from shared.domain.notification import (
    Event,
    IncidentFacts,
    MonitorFacts,
    Notification,
    NotificationData,
    words_of,
)
from shared.testing.nats import free_port
from tests.integration.channels.sinks import HttpSink

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NAME = 'a_b*[x](y) "q" \\ </b> 🔒-1.'
MESSAGE = 'line one\nsaid "no" \\ and <script>x</script> & @everyone \x00 end'
SHOWN = MESSAGE.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def outgoing(event: Event = Event.OPENED, *, name: str = NAME, message: str = MESSAGE, number: int = 7) -> Outgoing:
    """What a channel gets when the monitor with the awkward name fails."""
    state = {Event.RESOLVED: "resolved", Event.ACKNOWLEDGED: "acknowledged"}.get(event, "open")
    incident = IncidentFacts(
        UUID(int=1),
        "monitor",
        state,
        "down",
        "status_code",
        message,
        started_at=AT,
        opened_at=AT,
        resolved_at=AT if state == "resolved" else None,
    )
    monitor = MonitorFacts(UUID(int=2), name, "http", "https://shop.example/", {"team": "shop"})
    notification = Notification(event, AT, NotificationData(incident, monitor, {"status": "down"}))
    return Outgoing(UUID(int=number), notification, words_of(notification))


@pytest.fixture
async def sink() -> AsyncIterator[HttpSink]:
    async with HttpSink() as running:
        yield running


class Authority:
    """A root that signs servers of this machine."""

    def __init__(self, folder: Path) -> None:
        self.root = trustme.CA()
        self.ca_file = folder / "root.pem"
        self.root.cert_pem.write_to_path(str(self.ca_file))


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def unused_port() -> int:
    return free_port()
