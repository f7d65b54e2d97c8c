"""Where the next page of a list begins. Opaque to clients; a forged one shows nothing its key may not see."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from api.errors import invalid
from shared.domain.clock import to_datetime, to_milliseconds

MAX_LIMIT = 1000
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Items per page.")]
Cursor = Annotated[
    str | None,
    Field(
        max_length=200,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="`next_cursor` of the page before; without it, the first page.",
    ),
]
_RESULT = re.compile(r"([0-9]{1,14})\.([a-z0-9_-]{1,32})")
_CERTIFICATE = re.compile(r"([0-9]{1,14})\.([0-9a-f]{64})")
_POLICY = re.compile(r"([0-9]{1,5})\.([0-9a-f]{32})")
_ADVICE = "this is not a cursor of this list: pass next_cursor as it came"


class QueryParameters(BaseModel):
    """What follows the ``?``: always text, so unlike in a body "5" is a number. Unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PageQuery(QueryParameters):
    """Which page of a list."""

    limit: Limit = 50
    cursor: Cursor = None


def id_cursor(last: UUID) -> str:
    return _encode(last.hex)


def read_id_cursor(cursor: str | None) -> UUID | None:
    """Raises a 422 for anything that ``id_cursor`` did not make."""
    if cursor is None:
        return None
    try:
        return UUID(hex=_decode(cursor))
    except ValueError as error:
        raise invalid("cursor", _ADVICE) from error


def result_cursor(scheduled_at: datetime, region: str) -> str:
    return _encode(f"{to_milliseconds(scheduled_at)}.{region}")


def read_result_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    """Raises a 422 for anything that ``result_cursor`` did not make."""
    found = _matched(cursor, _RESULT)
    return None if found is None else (to_datetime(int(found[1])), found[2])


def certificate_cursor(first_seen_at: datetime, fingerprint: str) -> str:
    return _encode(f"{to_milliseconds(first_seen_at)}.{fingerprint}")


def read_certificate_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    """Raises a 422 for anything that ``certificate_cursor`` did not make."""
    found = _matched(cursor, _CERTIFICATE)
    return None if found is None else (to_datetime(int(found[1])), found[2])


def policy_cursor(priority: int, last: UUID) -> str:
    return _encode(f"{priority}.{last.hex}")


def read_policy_cursor(cursor: str | None) -> tuple[int, UUID] | None:
    """Raises a 422 for anything that ``policy_cursor`` did not make."""
    found = _matched(cursor, _POLICY)
    return None if found is None else (int(found[1]), UUID(hex=found[2]))


def _matched(cursor: str | None, pattern: re.Pattern[str]) -> re.Match[str] | None:
    if cursor is None:
        return None
    try:
        found = pattern.fullmatch(_decode(cursor))
    except ValueError as error:
        raise invalid("cursor", _ADVICE) from error
    if found is None:
        raise invalid("cursor", _ADVICE)
    return found


def _encode(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
