"""Alert policies as clients write and read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from shared.db.models import AlertPolicy, Channel
from shared.domain.alert_policy import DEFAULT_POLICY, AlertPolicySpec
from shared.services.alert_policies import reach

EXAMPLE: dict[str, Any] = {
    "name": "Shop, with quiet nights",
    "priority": 10,
    "match": {"tags": {"team": "shop"}, "severities": ["down"]},
    "steps": [
        {
            "delay_seconds": 0,
            "channels": "default",
            "quiet_hours": {"timezone": "Europe/Berlin", "from": "22:00", "to": "07:00"},
        },
        {"delay_seconds": 300, "channels": "default"},
    ],
    "repeat": 2,
    "repeat_after_seconds": 900,
    "reminder_seconds": 3600,
}


class AlertPolicyRead(AlertPolicySpec):
    """A policy with whether anybody would hear of an incident by it; `problems` say who would not, and why."""

    id: UUID
    working: bool
    problems: list[str]
    created_at: datetime
    updated_at: datetime


class DefaultPolicyRead(AlertPolicySpec):
    """What counts where no policy of yours matches."""

    working: bool
    problems: list[str]


class AlertPolicyPage(BaseModel):
    items: list[AlertPolicyRead]
    next_cursor: str | None


def policy_document(policy: AlertPolicy, channels: Sequence[Channel]) -> dict[str, Any]:
    found = reach(AlertPolicySpec.model_validate(policy.spec), channels)
    return {
        "id": policy.id,
        **policy.spec,
        "working": found.is_working,
        "problems": found.problems,
        "created_at": policy.created_at,
        "updated_at": policy.updated_at,
    }


def default_document(channels: Sequence[Channel]) -> dict[str, Any]:
    found = reach(DEFAULT_POLICY, channels)
    spec = DEFAULT_POLICY.model_dump(mode="json", by_alias=True)
    return {**spec, "working": found.is_working, "problems": found.problems}
