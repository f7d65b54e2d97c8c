"""Building what channels send with, from values of the configuration."""

from __future__ import annotations

from pathlib import Path

from shared.channels.record import Tools
from shared.domain.clock import Clock
from shared.domain.mail_server import parse_smtp_url
from shared.http.door import Door
from shared.http.guard import AddressPolicy
from shared.http.resolver import SystemResolver


def build_tools(
    policy: AddressPolicy,
    clock: Clock,
    *,
    smtp_url: str | None = None,
    smtp_from: str | None = None,
    allow_apprise: bool = False,
    ca_file: Path | None = None,
) -> Tools:
    """``policy`` is that of checks. ``ca_file`` replaces the machine's trusted roots. Raises ``ValueError``."""
    resolver = SystemResolver()
    return Tools(
        door=Door(policy, clock.monotonic, resolver, ca_file),
        trusted_door=Door(AddressPolicy(allow_private=True), clock.monotonic, resolver, ca_file),
        clock=clock,
        mail_server=None if smtp_url is None else parse_smtp_url(smtp_url),
        mail_from=smtp_from,
        allow_apprise=allow_apprise,
    )
