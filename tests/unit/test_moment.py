"""Times as clients write them."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from shared.domain.moment import LocalDateTime, LocalTime, Moment

TAKEN: list[tuple[Any, Any, Any]] = [
    (Moment, "2027-02-06T22:00:00Z", datetime(2027, 2, 6, 22, tzinfo=UTC)),
    (Moment, "2027-02-06t22:00:00.5z", datetime(2027, 2, 6, 22, 0, 0, 500_000, tzinfo=UTC)),
    (Moment, "2027-02-06T22:00+02:00", datetime(2027, 2, 6, 20, tzinfo=UTC)),
    (Moment, "9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    (Moment, datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)),
    (LocalTime, "22:00", time(22)),
    (LocalTime, "22:00:05", time(22, 0, 5)),
    (LocalDateTime, "2027-01-03T04:00", datetime(2027, 1, 3, 4)),  # noqa: DTZ001 a local time on purpose
]
REFUSED: list[tuple[Any, Any]] = [
    (Moment, "2027-02-06T22:00:00"),
    (Moment, "1893456000"),
    (Moment, "0.5"),
    (Moment, 1_893_456_000),
    (Moment, True),
    (Moment, "2027-02-30T22:00:00Z"),
    (Moment, "9999-12-31T23:59:59-23:59"),
    (Moment, "0001-01-01T00:00:00+23:59"),
    (Moment, "2027-02-06T22:00:00Z\n"),
    (LocalTime, 79200),
    (LocalTime, "24:00"),
    (LocalTime, "7:00"),
    (LocalDateTime, 1_893_456_000),
    (LocalDateTime, "1893456000"),
    (LocalDateTime, "2027-01-03T04:00Z"),
]


KINDS = {Moment: "moment", LocalTime: "local-time", LocalDateTime: "local-date-time"}


def _name(value: Any) -> str:
    return next((name for kind, name in KINDS.items() if kind is value), repr(value))


@pytest.mark.parametrize(("kind", "written", "taken"), TAKEN, ids=_name)
def test_a_written_time_is_taken_in_utc(kind: Any, written: Any, taken: Any) -> None:
    found = TypeAdapter(kind).validate_python(written)
    assert found == taken
    assert found.tzinfo == taken.tzinfo


@pytest.mark.parametrize(("kind", "written"), REFUSED, ids=_name)
def test_anything_else_is_refused(kind: Any, written: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(written)
