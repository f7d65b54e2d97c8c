"""The tables; importing this package registers all of them on ``Base.metadata``."""

from __future__ import annotations

from shared.db.models.alerting import AlertPolicy, Channel, Delivery
from shared.db.models.certificates import Certificate
from shared.db.models.heartbeats import Heartbeat, HeartbeatPing, HeartbeatReceiver
from shared.db.models.incidents import Incident, IncidentEvent, StatePeriod, WorkerBeat
from shared.db.models.jobs import JobState
from shared.db.models.maintenance import MaintenanceOccurrence, MaintenanceWindow
from shared.db.models.monitors import Monitor, MonitorState, SchedulePeriod
from shared.db.models.organisations import ApiKey, Membership, Organisation, User
from shared.db.models.outbox import IdempotencyKey, OutboxRow
from shared.db.models.results import CheckResult

__all__ = [
    "AlertPolicy",
    "ApiKey",
    "Certificate",
    "Channel",
    "CheckResult",
    "Delivery",
    "Heartbeat",
    "HeartbeatPing",
    "HeartbeatReceiver",
    "IdempotencyKey",
    "Incident",
    "IncidentEvent",
    "JobState",
    "MaintenanceOccurrence",
    "MaintenanceWindow",
    "Membership",
    "Monitor",
    "MonitorState",
    "Organisation",
    "OutboxRow",
    "SchedulePeriod",
    "StatePeriod",
    "User",
    "WorkerBeat",
]
