"""The probe of kind ``ssl``: handshakes, and what the servers show in them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from monitoring_worker.probes.deadline import timed_out
from shared.domain.checks import SslCheck
from shared.domain.clock import Clock
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation import TlsObservation, TlsPeer
from shared.http.dial import dial
from shared.http.door import Door
from shared.http.errors import HttpError, TargetError
from shared.http.starttls import Dialogue, ask_for_tls, prelude_timeout
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.tls import OBJECTION_WAIT, TlsPipe, TlsSettings
from shared.http.wire import Wire

MAX_ADDRESSES = 64
"""Addresses behind one name that are looked at; no name we know of has more."""

AT_ONCE = 16
"""Handshakes of one check that are made at the same time."""

_LEGACY = frozenset({"1.0", "1.1"})
"""Wanted versions that this machine's own settings would not talk."""

_UNEXPLAINED = frozenset({ErrorKind.TLS_WEAK, ErrorKind.TLS_HANDSHAKE})
"""Failures that may come from weakness: many servers hang up on a newer protocol without a word."""


class TlsProbe:
    """Makes observations; keeps nothing from one to the next."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def observe(self, spec: SslCheck, timeout_seconds: float) -> TlsObservation:
        """One attempt, over within the timeout."""
        if spec.addresses == "any":
            greeting = _Greeting(spec, self._door, self._clock)
            return await greeting.observe(timeout_seconds)
        return await self._survey(spec, timeout_seconds)

    async def _survey(self, spec: SslCheck, timeout_seconds: float) -> TlsObservation:
        """A handshake with each address behind the name; the deadline is that of all of them."""
        deadline = self._clock.monotonic() + timeout_seconds
        stopwatch = Stopwatch(self._clock.monotonic)
        try:
            async with asyncio.timeout(timeout_seconds):
                addresses = await self._door.addresses(spec.host, spec.ip_family, stopwatch)
        except HttpError as failure:
            return TlsObservation(stopwatch.timings(), error=failure.error)
        except TimeoutError:
            return TlsObservation(stopwatch.timings(), error=timed_out(Phase.DNS, timeout_seconds))
        resolved, places = stopwatch.timings().total, asyncio.Semaphore(AT_ONCE)

        async def look(address: str) -> TlsObservation:
            greeting = _Greeting(spec, self._door, self._clock, address)
            try:
                async with asyncio.timeout(deadline - self._clock.monotonic()):
                    await places.acquire()
            except TimeoutError:
                return greeting.not_reached(timeout_seconds)
            try:
                seen = await greeting.observe(timeout_seconds, deadline)
            finally:
                places.release()
            timings = replace(seen.timings, dns=resolved, total=round(seen.timings.total + resolved, 3))
            return replace(seen, timings=timings)

        each = await asyncio.gather(*map(look, addresses[:MAX_ADDRESSES]))
        return TlsObservation(stopwatch.timings(), each=tuple(each))


class _Greeting:
    """One handshake, with any address behind the name or with this one. What is known survives a failure."""

    def __init__(self, spec: SslCheck, door: Door, clock: Clock, address: str | None = None) -> None:
        self._spec, self._door, self._clock, self._address = spec, door, clock, address
        self._stopwatch = Stopwatch(clock.monotonic)
        self._remote_address = _written(address, spec.port) if address else None
        self._talk: Dialogue | None = None
        self._peer: TlsPeer | None = None
        self._complete = False
        self._found: CheckError | None = None

    async def observe(self, timeout_seconds: float, deadline: float | None = None) -> TlsObservation:
        """Shake hands; ``deadline`` (monotonic) is when the timeout ends where it began before."""
        left = timeout_seconds if deadline is None else deadline - self._clock.monotonic()
        error: CheckError | None = None
        try:
            async with asyncio.timeout(left):
                await self._exchange()
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            if not self._complete:
                error = self._timed_out(timeout_seconds)
        error = self._found or error
        return TlsObservation(self._stopwatch.timings(), self._remote_address, self._peer, error)

    def not_reached(self, timeout_seconds: float) -> TlsObservation:
        told = f"{timeout_seconds:g} s were over before it was this address's turn"
        error = CheckError(ErrorKind.TIMEOUT, told)
        return TlsObservation(self._stopwatch.timings(), self._remote_address, error=error)

    def _timed_out(self, timeout_seconds: float) -> CheckError:
        if self._talk and self._stopwatch.phase is Phase.FIRST_BYTE:
            return prelude_timeout(self._talk, timeout_seconds)
        return timed_out(self._stopwatch.phase, timeout_seconds)

    async def _exchange(self) -> None:
        legacy = self._spec.tls.min_version in _LEGACY
        try:
            await self._greet(lenient=legacy)
        except TargetError as failure:
            if failure.error.kind in _UNEXPLAINED and not legacy:
                self._found = failure.error
                await self._look_again()
            raise

    async def _look_again(self) -> None:
        """See what a server shows that may be too weak to be talked to; the failure of the first look stays one."""
        if self._peer and self._peer.chain:
            return
        assert self._remote_address
        self._address = self._remote_address.rpartition(":")[0].strip("[]")
        try:
            await self._greet(lenient=True)
        except TargetError:
            pass  # then there is nothing more to know

    async def _greet(self, *, lenient: bool) -> None:
        wire = await self._open()
        self._remote_address = wire.address
        try:
            await self._prelude(wire)
            await self._shake_hands(wire, lenient=lenient)
        finally:
            wire.close()

    async def _open(self) -> Wire:
        spec = self._spec
        if self._address is None:
            return await self._door.open(spec.host, spec.port, spec.ip_family, self._stopwatch)
        self._stopwatch.enter(Phase.CONNECT)
        return await dial([self._address], spec.port, self._clock.monotonic)

    async def _prelude(self, wire: Wire) -> None:
        if self._spec.starttls is None:
            self._stopwatch.enter(Phase.TLS, at=wire.connected_at)
            return
        self._stopwatch.enter(Phase.FIRST_BYTE, at=wire.connected_at)
        self._talk = Dialogue(self._spec.starttls, self._spec.server_name or self._spec.host)
        await ask_for_tls(wire, self._talk)
        self._stopwatch.enter(Phase.TLS)

    async def _shake_hands(self, wire: Wire, *, lenient: bool) -> None:
        settings = TlsSettings(verify=self._spec.tls.verify, ca_file=self._door.ca_file, lenient=lenient)
        pipe = TlsPipe(settings, self._spec.server_name or self._spec.host)
        try:
            await wire.start_tls(pipe)
        finally:
            self._peer = pipe.peer()
        self._stopwatch.pause()
        self._complete = True  # what follows is a wait for objections, and silence is none
        if self._peer.version == "TLSv1.3":
            await wire.settle(OBJECTION_WAIT)


def _written(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
