"""The probe of kind ``dns``: one question, asked of the name servers the check or the system names."""

from __future__ import annotations

import asyncio
from pathlib import Path

from monitoring_worker.probes.deadline import timed_out
from shared.domain.checks import DnsCheck
from shared.domain.clock import Clock
from shared.domain.dns_records import query_name
from shared.domain.errors import CheckError, ErrorKind
from shared.domain.observation_network import DnsObservation
from shared.http.dns_query import DnsAnswer, DnsQuestion, Server, system_servers
from shared.http.door import Door
from shared.http.errors import HttpError
from shared.http.stopwatch import Phase, Stopwatch

RESOLV_CONF = Path("/etc/resolv.conf")


class DnsProbe:
    """Makes observations; keeps nothing from one to the next. ``configuration`` names the system's servers."""

    def __init__(self, door: Door, clock: Clock, configuration: Path = RESOLV_CONF) -> None:
        self._door, self._clock, self._configuration = door, clock, configuration

    async def observe(self, spec: DnsCheck, timeout_seconds: float) -> DnsObservation:
        """One attempt, over within the timeout."""
        stopwatch = Stopwatch(self._clock.monotonic)
        question: DnsQuestion | None = None
        answer: DnsAnswer | None = None
        error: CheckError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                question = DnsQuestion(query_name(spec.record, spec.name), spec.record)
                servers = await self._servers(spec, stopwatch)
                answer = await question.ask(servers, self._clock.monotonic)
        except HttpError as failure:
            error = failure.error
        except TimeoutError:
            error = _timed_out(question, timeout_seconds)
        if answer is None:
            return DnsObservation(stopwatch.timings(), question.server if question else None, error=error)
        return DnsObservation(
            stopwatch.timings(),
            answer.server,
            answer.transport,
            answer.rcode,
            answer.records,
            answer.ttl,
            answer.alias,
            answer.reason,
        )

    async def _servers(self, spec: DnsCheck, stopwatch: Stopwatch) -> tuple[Server, ...]:
        stopwatch.enter(Phase.DNS)
        if spec.resolver is None:
            # The operator's own choice: it may well be a private address, and no user can change it.
            return system_servers(_read(self._configuration))
        addresses = await self._door.addresses(spec.resolver, "auto", stopwatch)
        return tuple((address, spec.port) for address in addresses)


def _read(configuration: Path) -> str:
    try:
        return configuration.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _timed_out(question: DnsQuestion | None, timeout_seconds: float) -> CheckError:
    if question is None or question.server is None:
        return timed_out(Phase.DNS, timeout_seconds)
    told = f"timed out after {timeout_seconds:g} s"
    if question.truncated:
        return question.truncation(told).error
    return CheckError(ErrorKind.DNS_TIMEOUT, f"{told}: {question.server} did not answer")
