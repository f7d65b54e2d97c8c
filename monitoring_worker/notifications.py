"""Sending notifications in a worker: the task itself is declared where both its ends know it."""

from __future__ import annotations

from monitoring_worker.settings import WorkerSettings
from shared.channels.tools import build_tools
from shared.contracts.sealing import Sealer
from shared.db.session import Database
from shared.domain.clock import Clock
from shared.http.guard import AddressPolicy
from shared.services.delivering import Notifier


def build_notifier(settings: WorkerSettings, database: Database, clock: Clock) -> Notifier:
    """Channels reach the same addresses as checks do; the operator's own mail server is trusted."""
    policy = AddressPolicy(settings.allow_private_targets, tuple(settings.allowed_networks))
    tools = build_tools(
        policy,
        clock,
        smtp_url=None if settings.smtp_url is None else settings.smtp_url.get_secret_value(),
        smtp_from=settings.smtp_from,
        allow_apprise=settings.apprise,
    )
    return Notifier(database, Sealer([key.get_secret_value() for key in settings.secret_keys]), tools, clock)
