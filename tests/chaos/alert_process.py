"""A relay or a notifier as a process of its own that SIGKILLs itself right after, or right before, a named step."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from shared.channels.tools import build_tools
from shared.contracts.sealing import Sealer
from shared.db.repositories import channels, deliveries, escalations, outbox
from shared.db.session import Database
from shared.domain.clock import SystemClock
from shared.http.guard import AddressPolicy
from shared.messaging.connect import connect
from shared.messaging.publisher import Publisher
from shared.messaging.streams import ensure_streams
from shared.services import alerting, delivering
from shared.services.alerting import AlertRelay
from shared.services.delivering import NOTIFICATIONS, Notifier, TaskDeliveryQueue
from shared.tasks.queue import TaskQueue
from shared.tasks.worker import TaskWorker

SECRET_KEY = "k" * 32

# Each names a step; its process dies before or after it.
STEPS: dict[str, tuple[Any, str]] = {
    "relay: take changes": (escalations, "take_transitions"),
    "relay: lock incidents": (escalations, "lock_incidents"),
    "relay: write deliveries": (deliveries, "add"),
    "relay: move the incident on": (escalations, "save_progress"),
    "relay: delete changes": (outbox, "delete"),
    "relay: take deliveries": (deliveries, "take_due"),
    "relay: hand to the queue": (TaskQueue, "send"),
    "relay: mark as handed over": (deliveries, "mark_queued"),
    "relay: look": (AlertRelay, "look_once"),
    "notifier: lock the delivery": (deliveries, "lock"),
    "notifier: claim": (deliveries, "claim"),
    "notifier: claim committed": (Notifier, "_claim"),
    "notifier: send": (delivering, "deliver"),
    "notifier: settle": (deliveries, "settle"),
    "notifier: note the channel": (channels, "note_outcome"),
    "notifier: call the next": (deliveries, "release_next"),
    "notifier: write the timeline": (deliveries, "note_on_incident"),
    "notifier: outcome committed": (Notifier, "_record"),
    "notifier: task done": (Notifier, "deliver"),
}


@dataclass(frozen=True)
class Orders:
    """Where everything is, and where to die: at the ``count``-th time of ``step``; None lives on."""

    database_url: str
    nats_url: str
    step: str | None = None
    after: bool = True
    count: int = 1


def _arm(orders: Orders) -> None:
    if orders.step is None:
        return
    owner, name = STEPS[orders.step]
    original: Callable[..., Any] = getattr(owner, name)
    left = orders.count

    @functools.wraps(original)
    async def deadly(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not orders.after:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return await original(*arguments, **keywords)
        finally:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, deadly)


def _hurry() -> None:
    """Claims and hand-overs run out within moments, so that two hundred rounds end today."""
    delivering.CLAIM = timedelta(seconds=1.5)
    delivering.AGAIN = timedelta(seconds=1)
    delivering.BLOCKED = timedelta(seconds=2)
    alerting.AGAIN_SECONDS = 3.0


def relay(orders: Orders) -> None:
    """The part of the API process that turns incidents into tasks."""
    _hurry()
    _arm(orders)
    asyncio.run(_relay(orders))


async def _relay(orders: Orders) -> None:
    clock = SystemClock()
    connection = await connect([orders.nats_url], name="relay", buffer_writes=False)
    await ensure_streams(connection.js)
    async with (
        Database(orders.database_url, application_name="relay") as database,
        Publisher(connection) as publisher,
    ):
        await AlertRelay(database, TaskDeliveryQueue(TaskQueue(publisher, clock)), clock).run()


def notifier(orders: Orders) -> None:
    """The part of a worker that sends."""
    _hurry()
    _arm(orders)
    asyncio.run(_notifier(orders))


async def _notifier(orders: Orders) -> None:
    clock = SystemClock()
    tools = build_tools(AddressPolicy(allow_private=True), clock)
    connection = await connect([orders.nats_url], name="notifier", buffer_writes=True)
    async with (
        Database(orders.database_url, application_name="notifier") as database,
        Publisher(connection) as publisher,
    ):
        worker = TaskWorker(connection, publisher, clock)
        worker.add(NOTIFICATIONS, Notifier(database, Sealer([SECRET_KEY]), tools, clock))
        await worker.listen(asyncio.Event())
