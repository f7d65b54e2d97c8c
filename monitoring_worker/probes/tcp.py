"""The probe of kind ``tcp``: a connection, and a banner read until it matches."""

from __future__ import annotations

import asyncio
from functools import partial

from monitoring_worker.probes.deadline import timed_out
from monitoring_worker.probes.judging import beside_the_loop
from shared.domain import effort
from shared.domain.banner import BANNER_LIMIT, banner_matches, is_laborious, unescape
from shared.domain.checks import TcpCheck
from shared.domain.clock import Clock
from shared.domain.effort import TooMuchEffortError
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import TlsPeer
from shared.domain.observation_network import BannerEnd, TcpObservation
from shared.http.door import Door
from shared.http.errors import HttpError, TargetError
from shared.http.inbox import Inbox
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.tls import OBJECTION_WAIT, TlsPipe, TlsSettings
from shared.http.wire import Wire

SEARCH_PAUSE = 0.01
"""Seconds between two searches of a banner, for each KiB of it: who drips bytes must not buy a search of all of
them with each.
"""


class TcpProbe:
    """Makes observations; keeps nothing from one to the next."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def observe(self, spec: TcpCheck, timeout_seconds: float) -> TcpObservation:
        """One attempt, over within the timeout."""
        talk = _Conversation(spec, self._door, self._clock)
        error: CheckError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await talk.hold()
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            if not talk.complete:
                error = timed_out(talk.stopwatch.phase, timeout_seconds)
        return talk.observation(error)


class _Conversation:
    """One connection. What is known survives a failure; ``complete`` once only the banner may be missing."""

    def __init__(self, spec: TcpCheck, door: Door, clock: Clock) -> None:
        self.stopwatch = Stopwatch(clock.monotonic)
        self.complete = False
        self._spec, self._door = spec, door
        self._remote_address: str | None = None
        self._peer: TlsPeer | None = None
        self._received = bytearray()
        self._end: BannerEnd | None = None

    async def hold(self) -> None:
        spec = self._spec
        wire = await self._door.open(spec.host, spec.port, spec.ip_family, self.stopwatch)
        self._remote_address = wire.address
        try:
            if spec.tls is not None:
                self.stopwatch.enter(Phase.TLS, at=wire.connected_at)
                await self._secure(wire, verify=spec.tls.verify)
            self.stopwatch.pause()
            await self._talk(wire)
        finally:
            wire.close()

    async def _secure(self, wire: Wire, *, verify: bool) -> None:
        settings = TlsSettings(verify=verify, ca_file=self._door.ca_file)
        pipe = TlsPipe(settings, self._spec.server_name or self._spec.host)
        try:
            await wire.start_tls(pipe)
        finally:
            self._peer = pipe.peer()

    async def _talk(self, wire: Wire) -> None:
        self.complete = True
        inbox = Inbox()
        wire.attach(inbox)
        if self._spec.send is not None:
            wire.send(unescape(self._spec.send))
        if self._spec.expect is not None:
            self.stopwatch.enter(Phase.FIRST_BYTE)
            self._end = "deadline"
            self._end = await self._listen(inbox, self._spec.expect)
            self.stopwatch.pause()
        elif self._peer and self._peer.version == "TLSv1.3":
            await wire.settle(OBJECTION_WAIT)

    async def _listen(self, inbox: Inbox, pattern: str) -> BannerEnd:
        effort.begin()
        while data := await inbox.more():
            self._received += data[: BANNER_LIMIT - len(self._received)]
            if await self._is_there(pattern):
                return "match"
            if len(self._received) >= BANNER_LIMIT:
                return "limit"
            await asyncio.sleep(SEARCH_PAUSE * (1 + len(self._received) // 1024))
        return "closed"

    async def _is_there(self, pattern: str) -> bool:
        search = partial(banner_matches, pattern, bytes(self._received))
        try:
            return await beside_the_loop(search) if is_laborious(pattern, len(self._received)) else search()
        except TooMuchEffortError as error:
            raise TargetError(
                ErrorKind.BANNER_MISMATCH, f"the banner was not searched to its end: {error}"
            ) from None

    def observation(self, error: CheckError | None) -> TcpObservation:
        return TcpObservation(
            timings=self.stopwatch.timings(),
            remote_address=self._remote_address,
            peer=self._peer,
            received=bytes(self._received),
            end=self._end,
            error=error,
        )
