"""Dead letters as clients read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from api.cursors import PageQuery
from shared.domain.checks import Strict

EXAMPLE: dict[str, Any] = {
    "id": "019a7f3e-5b1c-7c2d-8e4f-0a1b2c3d4e5f",
    "task": "deliver_notification",
    "task_id": "019a7f3e-0000-7000-8000-000000000001",
    "organisation_id": "019a7f00-0000-7000-8000-000000000002",
    "arguments": {"delivery_id": "019a7f3e-0000-7000-8000-000000000001"},
    "error": {"kind": "http_503", "message": "hooks.example answered 503"},
    "attempts": [
        {
            "at": "2026-11-30T12:00:00Z",
            "error_kind": "http_503",
            "message": "hooks.example answered 503",
            "worker": "worker-1:4711",
            "seconds": 0.21,
        }
    ],
    "failed_at": "2026-11-30T12:00:00.210000Z",
    "worker": "worker-1:4711",
}


class LetterError(BaseModel):
    """The last failure: a short word for it, and what was said."""

    kind: str
    message: str


class LetterAttempt(BaseModel):
    """One attempt that failed; ``at`` is when it began."""

    at: datetime
    error_kind: str
    message: str
    worker: str
    seconds: float


class DeadLetterRead(BaseModel):
    """Work that failed for good. ``organisation_id`` is null for work of the platform itself."""

    model_config = {"json_schema_extra": {"examples": [EXAMPLE]}}

    id: UUID
    task: str
    task_id: str | None
    organisation_id: UUID | None
    arguments: Annotated[
        Any, Field(description='What the task was asked; `{"base64": …}` for an unreadable message.')
    ]
    error: LetterError
    attempts: list[LetterAttempt]
    failed_at: datetime
    worker: str


class DeadLetterPage(BaseModel):
    items: list[DeadLetterRead]
    next_cursor: str | None


class DeadLetterQuery(PageQuery):
    """What to list."""

    task: Annotated[
        str | None, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$", description="Letters of this task only.")
    ] = None


class Purge(Strict):
    """Which letters to delete."""

    older_than_days: Annotated[
        float, Field(ge=0, le=3650, description="Those that failed longer ago.", examples=[7])
    ]


class Purged(BaseModel):
    """How many letters were deleted."""

    deleted: int


class Replayed(BaseModel):
    """The letter whose task was queued again."""

    id: UUID
    replayed: bool
