"""What all tables share: names of constraints, types, and how ids are made."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, DateTime, MetaData, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase
from uuid_utils.compat import uuid7

SCHEMA_REVISION = "0008"
"""The migration this code needs at least. Revisions are four digits in order: a newer schema is fine, so that
the previous release keeps running while the next one rolls out."""

APP_ROLE = "tocsin_app"
SYSTEM_ROLE = "tocsin_system"
TENANT_SETTING = "tocsin.organisation_id"


class Base(DeclarativeBase):
    """Every time has a zone, every id is a UUID, every document is jsonb."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        UUID: Uuid(),
        datetime: DateTime(timezone=True),
        str: Text(),
        int: BigInteger(),
        dict[str, Any]: JSONB(),
        dict[str, str]: JSONB(),
        list[str]: ARRAY(Text()),
    }


def new_id() -> UUID:
    """A UUIDv7: it sorts by creation, which keeps indexes dense and lists in a stable order."""
    return uuid7()
