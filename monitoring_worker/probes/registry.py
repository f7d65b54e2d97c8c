"""Which probe observes which kind of check. A new kind is one line here."""

from __future__ import annotations

from typing import Any, Protocol

from monitoring_worker.probes.dns import DnsProbe
from monitoring_worker.probes.http import HttpProbe
from monitoring_worker.probes.ping import PingProbe
from monitoring_worker.probes.steps import StepsProbe
from monitoring_worker.probes.tcp import TcpProbe
from monitoring_worker.probes.tls import TlsProbe
from shared.domain.checks import DnsCheck, HttpCheck, HttpStepsCheck, PingCheck, SslCheck, TcpCheck
from shared.domain.clock import Clock
from shared.domain.evaluate import Observation
from shared.http.door import Door


class Probe(Protocol):
    """Makes one observation of one check; failures of the target are part of it."""

    async def observe(self, spec: Any, timeout_seconds: float) -> Observation:
        """Look once, for at most so many seconds."""
        ...


def build_probes(door: Door, clock: Clock) -> dict[type, Probe]:
    """The probes by the class of the specification they observe."""
    http = HttpProbe(door, clock)
    return {
        HttpCheck: http,
        HttpStepsCheck: StepsProbe(http, clock),
        SslCheck: TlsProbe(door, clock),
        TcpCheck: TcpProbe(door, clock),
        DnsCheck: DnsProbe(door, clock),
        PingCheck: PingProbe(door, clock),
    }
