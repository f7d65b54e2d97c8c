"""Which URLs of a database are taken, and how they reach the driver."""

from __future__ import annotations

import pytest

from shared.db.engine import parse_url
from shared.db.errors import DatabaseUnusableError


@pytest.mark.parametrize(
    ("url", "driven"),
    [
        ("postgres://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgresql://u@h:5433/d?sslmode=verify-full", "postgresql+asyncpg://u@h:5433/d?ssl=verify-full"),
        ("postgresql://u@/d?host=/run/postgresql", "postgresql+asyncpg://u@/d?host=%2Frun%2Fpostgresql"),
    ],
)
def test_a_url_is_taken_as_other_programs_write_it(url: str, driven: str) -> None:
    assert parse_url(url).render_as_string(hide_password=False) == driven


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "cannot be used"),
        ("mysql://u@h/d", "cannot be used"),
        ("postgresql://u:secret@h:port/d", "cannot be used"),
        ("postgresql://u:secret@h/d?channel_binding=require", "does not take: channel_binding"),
    ],
)
def test_what_the_driver_cannot_use_is_refused_in_one_line(url: str, problem: str) -> None:
    with pytest.raises(DatabaseUnusableError, match=problem) as refused:
        parse_url(url)
    assert "TOCSIN_DATABASE_URL" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
