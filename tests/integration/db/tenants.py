"""Rows that most tests need."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from shared.db.base import new_id
from shared.db.models import (
    Certificate,
    Incident,
    IncidentEvent,
    Membership,
    Monitor,
    MonitorState,
    Organisation,
    User,
)
from shared.db.session import Database
from shared.domain.clock import SystemClock, to_datetime


async def add_organisation(database: Database, name: str) -> UUID:
    """A tenant with one owner."""
    organisation, owner = new_id(), new_id()
    async with database.system() as session:
        session.add(Organisation(id=organisation, name=name, slug=name))
        session.add(User(id=owner, email=f"owner@{name}.example", name="Owner", password_hash="x"))
        await session.flush()
        session.add(Membership(organisation_id=organisation, user_id=owner, role="owner"))
    return organisation


async def add_monitor(database: Database, organisation_id: UUID, now: datetime, **columns: Any) -> UUID:
    """A monitor with its state, due every minute."""
    monitor_id = new_id()
    async with database.system() as session:
        session.add(monitor_row(monitor_id, organisation_id, now, **columns))
        await session.flush()
        session.add(MonitorState(monitor_id=monitor_id, organisation_id=organisation_id, status_since=now))
    return monitor_id


def monitor_row(monitor_id: UUID, organisation_id: UUID, now: datetime, **columns: Any) -> Monitor:
    defaults: dict[str, Any] = {
        "name": "Shop",
        "kind": "http",
        "interval_seconds": 60,
        "timeout_seconds": 10.0,
        "regions": ["default"],
        "tags": {},
        "retries": 0,
        "retry_delay_seconds": 1.0,
        "failure_threshold": 1,
        "recovery_threshold": 1,
        "check_spec": {"kind": "http", "url": "https://shop.example/"},
        "revision": 1,
        "created_at": now,
        "updated_at": now,
    }
    return Monitor(id=monitor_id, organisation_id=organisation_id, **{**defaults, **columns})


async def add_certificate(database: Database, organisation_id: UUID, monitor_id: UUID) -> str:
    """A certificate of a monitor that nobody has accepted yet; answers its fingerprint."""
    fingerprint = new_id().hex * 2
    async with database.system() as session:
        session.add(
            Certificate(
                monitor_id=monitor_id,
                fingerprint_sha256=fingerprint,
                organisation_id=organisation_id,
                first_seen_at=to_datetime(SystemClock().now_ms()),
                facts={},
                changes=[],
            )
        )
    return fingerprint


async def add_incident(database: Database, organisation_id: UUID, monitor_id: UUID) -> UUID:
    """An open incident of a monitor, with a line in its timeline."""
    incident_id, now = new_id(), to_datetime(SystemClock().now_ms())
    async with database.system() as session:
        session.add(
            Incident(
                id=incident_id,
                organisation_id=organisation_id,
                monitor_id=monitor_id,
                kind="monitor",
                state="open",
                severity="down",
                cause="timeout",
                message="no answer",
                started_at=now,
                opened_at=now,
                last_failure_at=now,
            )
        )
        await session.flush()
        session.add(
            IncidentEvent(
                organisation_id=organisation_id, incident_id=incident_id, at=now, kind="opened", detail={}
            )
        )
    return incident_id
