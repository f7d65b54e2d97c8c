"""The probe of kind ``ping``: a few ICMP echoes, to one address of each family the name has."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from monitoring_worker.probes.deadline import timed_out
from shared.domain.checks import PingCheck
from shared.domain.clock import Clock
from shared.domain.errors import CheckError
from shared.domain.observation_network import PingObservation
from shared.domain.result import Timings
from shared.http.door import Door
from shared.http.errors import HttpError, TargetError
from shared.http.icmp import EchoSocket
from shared.http.stopwatch import Phase, Stopwatch


class PingProbe:
    """Makes observations; keeps nothing from one to the next."""

    def __init__(self, door: Door, clock: Clock) -> None:
        self._door = door
        self._clock = clock

    async def observe(self, spec: PingCheck, timeout_seconds: float) -> PingObservation:
        """One attempt, over within the timeout; replies that are not there by then are lost."""
        deadline = self._clock.monotonic() + timeout_seconds
        stopwatch = Stopwatch(self._clock.monotonic)
        try:
            async with asyncio.timeout(timeout_seconds):
                addresses = await self._door.addresses(spec.host, spec.ip_family, stopwatch)
        except HttpError as failure:
            return PingObservation(stopwatch.timings(), error=failure.error)
        except TimeoutError:
            return PingObservation(stopwatch.timings(), error=timed_out(Phase.DNS, timeout_seconds))
        dns_ms = stopwatch.timings().total
        seen = await asyncio.gather(*(self._echoes(address, spec, deadline) for address in _one_each(addresses)))
        # The family the system prefers counts, unless nothing comes back from it: many networks lack one.
        chosen = next((each for each in seen if each.round_trips), seen[0])
        return replace(chosen, timings=_timings(dns_ms, chosen.round_trips))

    async def _echoes(self, address: str, spec: PingCheck, deadline: float) -> PingObservation:
        try:
            echo = EchoSocket(address, self._clock.monotonic)
        except TargetError as failure:
            return PingObservation(Timings(), address, error=failure.error)
        with contextlib.closing(echo):
            try:
                async with asyncio.timeout(deadline - self._clock.monotonic()):
                    await _send_all(echo, spec)
            except TimeoutError:
                pass  # what has not come by now is lost
            error = _failure(echo)
            return PingObservation(Timings(), address, echo.sent, tuple(echo.round_trips.values()), error)


async def _send_all(echo: EchoSocket, spec: PingCheck) -> None:
    for number in range(spec.count):
        if number:
            await asyncio.sleep(spec.interval_ms / 1000)
        echo.send()
    await echo.all_answered()


def _failure(echo: EchoSocket) -> CheckError | None:
    """What the network said, where no reply contradicts it."""
    return echo.failure.error if echo.failure and not echo.round_trips else None


def _one_each(addresses: tuple[str, ...]) -> list[str]:
    """The first address of each family, in the order of the system."""
    return list({":" in address: address for address in reversed(addresses)}.values())[::-1]


def _timings(dns_ms: float, round_trips: tuple[float, ...]) -> Timings:
    """The mean round trip is the response time: how long the whole check took says nothing about the target."""
    mean = round(sum(round_trips) / len(round_trips), 3) if round_trips else 0.0
    return Timings(dns=dns_ms, first_byte=mean, total=round(dns_ms + mean, 3))
