"""API keys as clients write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from shared.db.models import ApiKey
from shared.domain.checks import Strict
from shared.domain.moment import Moment
from shared.services.api_keys import Scope

EXAMPLE: dict[str, Any] = {"name": "CI", "scopes": ["write"]}


class NewApiKey(Strict):
    """``scopes``: each includes the ones before it in read, write, admin."""

    name: Annotated[str, Field(min_length=1, max_length=200, examples=["CI"])]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope), examples=[["write"]])]
    expires_at: Annotated[Moment | None, Field(description="None: until it is deleted.")] = None


class ApiKeyRead(BaseModel):
    """A key; of the key itself only how it begins."""

    id: UUID
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


class ApiKeyCreated(ApiKeyRead):
    key: Annotated[str, Field(description="Shown this once, and never again.")]


class ApiKeyPage(BaseModel):
    items: list[ApiKeyRead]
    next_cursor: str | None


def key_document(row: ApiKey) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ApiKeyRead.model_fields}
