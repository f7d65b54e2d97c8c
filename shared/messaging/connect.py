"""One connection to NATS per process, with the settings that notice a dead server within three seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

import structlog
from nats.aio.client import DEFAULT_PENDING_SIZE, Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from shared.domain.clock import Clock, SystemClock
from shared.messaging.errors import ConnectFailedError

Listener = Callable[[], None]

PING_INTERVAL_SECONDS: Final = 1
UNANSWERED_PINGS: Final = 2
RECONNECT_WAIT_SECONDS: Final = 0.25
DIAL_TIMEOUT_SECONDS: Final = 1
REQUEST_TIMEOUT_SECONDS: Final = 2.0
_LOG_EVERY_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class _HangingUp(Client):
    """The client, but for the socket of a handshake that fails: the library leaves it to the garbage collector."""

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # it is half typed
            raise


class NatsConnection:
    """A client with its JetStream context, and the listeners that want to know of a reconnect.

    ``errors`` and ``reconnects`` only grow. ``lost_at`` is the monotonic time at which the connection was last
    lost. ``on_closed`` is called when the client gave up for good (say, its
    credentials were revoked), never for our own ``close``.
    """

    def __init__(self, client: Client, *, on_closed: Listener | None = None, clock: Clock) -> None:
        self.client = client
        self.js: JetStreamContext = client.jetstream(timeout=REQUEST_TIMEOUT_SECONDS)
        self.errors = 0
        self.reconnects = 0
        self.lost_at = float("-inf")
        self.last_error: Exception | None = None
        self._on_closed = on_closed
        self._clock = clock
        self._listeners: list[Listener] = []
        self._loss_listeners: list[Listener] = []
        self._closing = False
        self._logged: dict[str, float] = {}

    @property
    def is_connected(self) -> bool:
        return bool(self.client.is_connected)

    @property
    def is_closed(self) -> bool:
        return bool(self.client.is_closed)

    def add_reconnect_listener(self, listener: Listener) -> Listener:
        """Call ``listener`` after every reconnect, on the event loop; answers a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def add_loss_listener(self, listener: Listener) -> None:
        """Call ``listener`` when the connection is lost, before anything else is sent over the next one."""
        self._loss_listeners.append(listener)

    async def round_trip(self) -> float:
        """Seconds that JetStream takes to answer; raises ``nats.errors.Error`` when it does not.

        A request on purpose: a ``flush`` or ``rtt`` of the client that times out leaves the connection deaf.
        """
        started = self._clock.monotonic()
        await self.js.account_info()
        return self._clock.monotonic() - started

    async def close(self) -> None:
        """Send what is buffered and close. Idempotent; suppresses ``on_closed``."""
        self._closing = True
        if not self.client.is_closed:
            await self.client.close()

    async def note_error(self, error: Exception) -> None:
        """Count an asynchronous error; log each kind at most every five seconds (a dead server repeats itself)."""
        self.errors += 1
        # Who refuses us hangs up as well, and its words say more than the reset that may follow them.
        if not (isinstance(error, OSError) and type(self.last_error) is NatsError):
            self.last_error = error
        text = describe(error)
        now = self._clock.monotonic()
        if now - self._logged.get(text, float("-inf")) >= _LOG_EVERY_SECONDS:
            self._logged = {text: now}
            _log.warning("NATS connection error", error=text, errors=self.errors)

    async def note_disconnected(self) -> None:
        self.lost_at = self._clock.monotonic()
        for listener in tuple(self._loss_listeners):
            listener()
        if not self._closing:
            _log.warning("NATS connection lost")

    async def note_reconnected(self) -> None:
        self.reconnects += 1
        _log.info("NATS connection is back", reconnects=self.reconnects)
        for listener in tuple(self._listeners):
            listener()

    async def note_closed(self) -> None:
        if self._closing:
            return
        _log.error("NATS connection closed for good", error=describe(self.client.last_error))
        if self._on_closed is not None:
            self._on_closed()


async def connect(
    urls: Sequence[str],
    *,
    name: str,
    buffer_writes: bool,
    on_reconnected: Listener | None = None,
    on_closed: Listener | None = None,
    deadline: float = 30.0,
    clock: Clock | None = None,
) -> NatsConnection:
    """Connect to the first of ``urls`` that answers, trying for ``deadline`` seconds.

    ``buffer_writes`` keeps what is written while the connection is down and sends it afterwards: right for
    acknowledgements, wrong for a scheduler, whose late messages would be stale. Raises ``ConnectFailedError``.
    """
    client = _HangingUp()
    connection = NatsConnection(client, on_closed=on_closed, clock=clock or SystemClock())
    if on_reconnected is not None:
        connection.add_reconnect_listener(on_reconnected)
    try:
        servers, credentials = _split(urls)
        async with asyncio.timeout(deadline):
            await client.connect(
                servers=servers,
                name=name,
                user=credentials.user,
                password=credentials.password,
                token=credentials.token,
                pending_size=DEFAULT_PENDING_SIZE if buffer_writes else 0,
                ping_interval=PING_INTERVAL_SECONDS,
                max_outstanding_pings=UNANSWERED_PINGS,
                max_reconnect_attempts=-1,
                # The client types whole seconds; it only ever sleeps for this long.
                reconnect_time_wait=RECONNECT_WAIT_SECONDS,  # type: ignore[arg-type]
                connect_timeout=DIAL_TIMEOUT_SECONDS,
                error_cb=connection.note_error,
                disconnected_cb=connection.note_disconnected,
                reconnected_cb=connection.note_reconnected,
                closed_cb=connection.note_closed,
            )
    except (NatsError, OSError, ValueError) as error:
        await _abandon(connection)
        reason = connection.last_error if isinstance(error, TimeoutError) and connection.last_error else error
        raise ConnectFailedError(
            f"no NATS server at {', '.join(map(redact, urls))} within {deadline:g} s "
            f"({describe(reason)}): check TOCSIN_NATS_URL"
        ) from error
    _log.info("connected to NATS", server=redact(client.connected_url.geturl() if client.connected_url else ""))
    return connection


async def _abandon(connection: NatsConnection) -> None:
    try:
        await connection.close()
    except (NatsError, OSError, AssertionError) as error:  # the client asserts that it once got as far as a socket
        _log.debug("closing an unfinished connection failed", error=describe(error))


@dataclass(frozen=True, slots=True)
class _Credentials:
    user: str | None = None
    password: str | None = None
    token: str | None = None


def _split(urls: Sequence[str]) -> tuple[list[str], _Credentials]:
    """Addresses without credentials, and the credentials of the first URL that carries some.

    The client would use a URL's credentials for that one address only: the other members of a cluster, which it
    learns of later, would refuse it after a fail-over. Kept apart, they also stay out of its error texts.
    """
    credentials = _Credentials()
    servers = []
    for url in urls:
        parts = urlsplit(url if "://" in url else f"nats://{url}")
        if not parts.hostname:
            raise ValueError("an address needs a host name")
        servers.append(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        if parts.username is not None and credentials == _Credentials():
            credentials = _credentials(parts.username, parts.password)
    if not servers:
        raise ValueError("no address given")
    return servers, credentials


def _credentials(user: str, password: str | None) -> _Credentials:
    if password is None:
        return _Credentials(token=unquote(user))
    return _Credentials(user=unquote(user), password=unquote(password))


def redact(url: str) -> str:
    """The URL without its password or token, for logs and messages."""
    scheme, separator, rest = url.rpartition("://")
    secrets, at, address = rest.rpartition("@")
    if not at:
        return url
    user, colon, _ = secrets.partition(":")
    return f"{scheme}{separator}{user + ':' if colon else ''}***@{address}"


def describe(error: BaseException | None) -> str:
    """One line that is never empty: several exceptions of asyncio and nats have no text."""
    return f"{type(error).__name__}: {error}".rstrip(": ") if error is not None else "unknown"
