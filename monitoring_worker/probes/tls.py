"""The probe of kind ``ssl``: one handshake, and what the server shows in it."""

from __future__ import annotations

import asyncio

from monitoring_worker.probes.deadline import timed_out
from shared.domain.checks import SslCheck
from shared.domain.clock import Clock
from shared.domain.errors import CheckError
from shared.domain.observation import TlsObservation, TlsPeer
from shared.http.door import Door
from shared.http.errors import HttpError
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.tls import OBJECTION_WAIT, TlsPipe, TlsSettings


class TlsProbe:
    """Makes observations; keeps nothing from one to the next."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def observe(self, spec: SslCheck, timeout_seconds: float) -> TlsObservation:
        """One attempt, over within the timeout."""
        greeting = _Greeting(spec, self._door, Stopwatch(self._clock.monotonic))
        error: CheckError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await greeting.exchange()
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            error = timed_out(greeting.stopwatch.phase, timeout_seconds)
        return TlsObservation(greeting.stopwatch.timings(), greeting.remote_address, greeting.peer, error)


class _Greeting:
    """One handshake. What is known survives a failure."""

    def __init__(self, spec: SslCheck, door: Door, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.remote_address: str | None = None
        self.peer: TlsPeer | None = None
        self._spec = spec
        self._door = door

    async def exchange(self) -> None:
        spec = self._spec
        wire = await self._door.open(spec.host, spec.port, spec.ip_family, self.stopwatch)
        self.remote_address = wire.address
        self.stopwatch.enter(Phase.TLS, at=wire.connected_at)
        pipe = TlsPipe(
            TlsSettings(verify=spec.tls.verify, ca_file=self._door.ca_file), spec.server_name or spec.host
        )
        try:
            await wire.start_tls(pipe)
            self.stopwatch.pause()
            self.peer = pipe.peer()
            if self.peer.version == "TLSv1.3":
                await wire.settle(OBJECTION_WAIT)
        finally:
            self.peer = pipe.peer()
            wire.close()
