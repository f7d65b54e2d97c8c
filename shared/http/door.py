"""The one guarded door: every connection this product makes to a user's target goes through it.

A name is resolved once, all its addresses are judged, and exactly those are dialled: what a name server answers
to a second question does not matter, because nobody asks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.domain.url import is_address
from shared.http.dial import Tried, dial
from shared.http.errors import BlockedError
from shared.http.guard import AddressPolicy
from shared.http.resolver import Family, Resolver
from shared.http.stopwatch import Phase, Stopwatch
from shared.http.wire import Wire


@dataclass(frozen=True, slots=True)
class Door:
    """``ca_file`` names trusted roots instead of the system's; ``monotonic`` is ``Clock.monotonic``."""

    policy: AddressPolicy
    monotonic: Callable[[], float]
    resolver: Resolver
    ca_file: Path | None = None

    async def open(
        self, host: str, port: int, family: Family, stopwatch: Stopwatch, tried: Tried | None = None
    ) -> Wire:
        """A fresh TCP connection; raises ``TargetError`` or ``BlockedError``. The caller sets the deadline."""
        addresses = await self.addresses(host, family, stopwatch)
        stopwatch.enter(Phase.CONNECT)
        return await dial(addresses, port, self.monotonic, tried)

    async def addresses(self, host: str, family: Family, stopwatch: Stopwatch) -> tuple[str, ...]:
        """All addresses of a host, best first, none of them refused; raises ``TargetError`` or ``BlockedError``."""
        stopwatch.enter(Phase.DNS)
        addresses = await self.resolver.resolve(host, family)
        for address in addresses:
            if refusal := self.policy.refusal(address):
                raise BlockedError(f"{host} is blocked: {refusal}")
        return addresses

    def refuse_literal(self, host: str) -> None:
        """Raises ``BlockedError`` for an address, or this machine's own name, that must not be dialled.

        For the way through a proxy: it resolves every other name, so nobody here can know where that leads.
        """
        name = host.removesuffix(".")
        address = "127.0.0.1" if name == "localhost" or name.endswith(".localhost") else host
        if is_address(address) and (refusal := self.policy.refusal(address)):
            raise BlockedError(f"{host} is blocked: {refusal}")
