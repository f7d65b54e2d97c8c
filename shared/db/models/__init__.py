"""The tables; importing this package registers all of them on ``Base.metadata``."""

from __future__ import annotations

from shared.db.models.monitors import Monitor, MonitorState, SchedulePeriod
from shared.db.models.organisations import ApiKey, Membership, Organisation, User
from shared.db.models.outbox import IdempotencyKey, OutboxRow
from shared.db.models.results import CheckResult

__all__ = [
    "ApiKey",
    "CheckResult",
    "IdempotencyKey",
    "Membership",
    "Monitor",
    "MonitorState",
    "Organisation",
    "OutboxRow",
    "SchedulePeriod",
    "User",
]
