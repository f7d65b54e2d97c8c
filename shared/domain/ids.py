"""Ids in the one form in which we write them (RFC 9562): an id with two spellings would have two addresses."""

from __future__ import annotations

import re
from typing import Any, Final
from uuid import UUID

ID_PATTERN: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_ID = re.compile(ID_PATTERN)


def read_id(text: str) -> UUID:
    """Raises ``ValueError`` for what Python takes beside this form: ``urn:uuid:…``, braces, no hyphens."""
    if not _ID.fullmatch(text):
        raise ValueError("write an id as in 019a7f3e-5b1c-7c2d-8e4f-0a1b2c3d4e5f")
    return UUID(text)


def require_id(value: Any) -> Any:
    """For a validator in front of another one: refuses a text that is no id; all else passes as it is."""
    return read_id(value) if isinstance(value, str) else value
