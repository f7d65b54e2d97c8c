"""The organisation and its members as clients write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from shared.db.models import Organisation
from shared.domain.checks import Strict


class OrganisationRead(BaseModel):
    id: UUID
    name: str
    slug: str
    created_at: datetime


class OrganisationPatch(Strict):
    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$", examples=["Example Ltd"])]


class MemberRead(BaseModel):
    """A person in this organisation; the id is the person's."""

    id: UUID
    email: str
    name: str
    role: Literal["owner", "admin", "member"]
    created_at: datetime


class MemberPage(BaseModel):
    items: list[MemberRead]
    next_cursor: str | None


def organisation_document(organisation: Organisation) -> dict[str, Any]:
    return {name: getattr(organisation, name) for name in OrganisationRead.model_fields}
