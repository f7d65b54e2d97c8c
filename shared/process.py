"""The life of a process: side tasks that are watched, a stop by signal, a loud end when a part is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog
import uvloop
from nats.errors import Error as NatsError

from shared.db.errors import DatabaseError
from shared.messaging.connect import NatsConnection, connect
from shared.messaging.errors import MessagingError
from shared.messaging.streams import ensure_streams
from shared.settings import CommonSettings, ConfigurationError

log = structlog.get_logger(__name__)

EXIT_FAILED = 1
EXIT_MISCONFIGURED = 2


class PartEndedError(Exception):
    """A part that should run as long as the process ended without a word."""


class Life:
    """Watches named parts until SIGTERM or SIGINT, or until one of them ends: then the process must not go on.

    A process that lost a part and lives on looks healthy while it does nothing; one that ends is restarted.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self._parts: set[asyncio.Task[Any]] = set()
        self._starting: asyncio.Task[Any] | None = None

    def listen_to_signals(self) -> None:
        """From here on a signal stops the process: it cancels the start, or ends ``wait``."""
        loop = asyncio.get_running_loop()
        self._starting = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number.name)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a part beside the others, watched."""
        task = asyncio.create_task(work, name=name)
        self._parts.add(task)
        return task

    def fail(self, reason: str) -> None:
        """End the process because of something that no part can raise by itself."""

        async def failing() -> None:
            raise PartEndedError(reason)

        self.start("failure", failing())

    def problem(self) -> str | None:
        """A readiness probe: a process that stops takes no new work."""
        return "stopping" if self.stopping.is_set() else None

    async def wait(self) -> None:
        """Return when a signal came; raise what a part raised, or ``PartEndedError``."""
        self._starting = None
        stop = asyncio.create_task(self.stopping.wait())
        try:
            while not self.stopping.is_set():
                # Parts may be added while we wait, so the wait is renewed once a second.
                await asyncio.wait({stop, *self._parts}, return_when=asyncio.FIRST_COMPLETED, timeout=1.0)
                if not self.stopping.is_set():
                    self._raise_ended()
        finally:
            stop.cancel()

    async def end(self) -> None:
        """Cancel the parts that still run, and wait for them."""
        running = {task for task in self._parts if not task.done()}
        while running:
            # Again and again: asyncio.wait_for, which the NATS client is full of, can swallow a cancellation.
            for task in running:
                task.cancel()
            _, running = await asyncio.wait(running, timeout=0.5)

    def _stop(self, name: str) -> None:
        log.info("stopping", signal=name)
        self.stopping.set()
        if self._starting:
            self._starting.cancel()

    def _raise_ended(self) -> None:
        for task in self._parts:
            if task.done():
                error = None if task.cancelled() else task.exception()
                while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                    error = error.exceptions[0]  # a task group wraps even a single failure
                raise error or PartEndedError(f"{task.get_name()} ended, though it should run for ever")


async def join_nats(
    stack: AsyncExitStack, life: Life, settings: CommonSettings, kind: str, *, buffer_writes: bool
) -> NatsConnection:
    """Connect, declare the streams, and have the connection closed with the stack.

    A connection that is closed for good ends the process. Raises ``MessagingError``.
    """
    connection = await connect(
        settings.nats_url,
        name=f"tocsin-{kind}-{socket.gethostname()}-{os.getpid()}",
        buffer_writes=buffer_writes,
        on_closed=lambda: life.fail("the connection to NATS is closed for good"),
    )
    stack.push_async_callback(connection.close)
    await ensure_streams(connection.js, settings.nats_replicas)
    return connection


def run_process(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a process to its end: exit code 0 after a signal, else 1 and one line that says why."""
    # What the imports made stays for good, and messages come and go by reference count: the default thresholds
    # would walk over all of it many times a second.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        uvloop.run(work())
    except asyncio.CancelledError:
        log.info("stopped before the start was complete")
    except (MessagingError, NatsError, DatabaseError, PartEndedError, OSError) as error:
        log.error("the process ends", reason=str(error) or type(error).__name__)
        sys.exit(EXIT_FAILED)
    except Exception:
        log.exception("the process ends because of a fault of its own")
        sys.exit(EXIT_FAILED)


def run_main(main: Callable[[], None]) -> None:
    """Run ``main`` as a program; a wrong setting is one line on stderr and exit code 2: no restart mends it."""
    try:
        main()
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(EXIT_MISCONFIGURED)
