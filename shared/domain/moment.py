"""Times as clients write them: text in the forms of RFC 3339, with an offset or on the clock of some zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, NaiveDatetime, WithJsonSchema

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?"
_OFFSET = re.compile(r"(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?")


def _written_as(pattern: str, example: str) -> BeforeValidator:
    """Pydantic would take a bare number for seconds, or for milliseconds when it is large."""
    begins = re.compile(pattern)

    def check(value: Any) -> Any:
        if isinstance(value, str):
            start = begins.match(value)
            understood = start is not None and _OFFSET.fullmatch(value, start.end()) is not None
        else:
            understood = isinstance(value, datetime | time)
        if not understood:
            raise ValueError(f"write it like {example}")
        return value

    return BeforeValidator(check)


def _shown_as(pattern: str) -> WithJsonSchema:
    """``format: time`` and ``format: date-time`` of JSON Schema have an offset, and these have none."""
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$"})


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


Moment = Annotated[
    AwareDatetime,
    Field(ge=_FIRST, le=_LAST),
    _written_as(f"{_DATE}[Tt ]{_CLOCK}", "2027-02-06T22:00:00Z"),
    AfterValidator(_in_utc),
]
"""An instant from 1970 to the year 9999, in UTC however it was written."""

LocalDateTime = Annotated[
    NaiveDatetime, _written_as(f"{_DATE}T{_CLOCK}", "2027-02-06T22:00"), _shown_as(f"{_DATE}T{_CLOCK}")
]
LocalTime = Annotated[time, _written_as(_CLOCK, "22:00"), _shown_as(_CLOCK)]
