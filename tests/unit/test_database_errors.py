"""What an error of the database means for whoever asked."""

from __future__ import annotations

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from shared.db.availability import is_unavailable
from shared.db.engine import parse_url
from shared.db.errors import DatabaseUnusableError, is_content_fault, is_missing_partition


def refused(state: str | None, message: str = "", cause: Exception | None = None) -> DBAPIError:
    original = Exception(message)
    original.sqlstate = state  # type: ignore[attr-defined] # as the driver's errors have it
    original.__cause__ = cause
    kind = DBAPIError if state else InterfaceError
    return kind("SELECT 1", {}, original)


GONE = refused(None, "cannot perform operation: connection is closed")
TOO_MANY = refused(None, "the number of query arguments cannot exceed 32767")


@pytest.mark.parametrize("state", ["08006", "40P01", "53300", "55P03", "57014", "57P01", "57P03", "25006", "58030"])
def test_a_server_that_is_away_or_busy_may_be_asked_again(state: str) -> None:
    assert is_unavailable(refused(state))
    assert not is_content_fault(refused(state))


@pytest.mark.parametrize("error", [ConnectionRefusedError(), TimeoutError(), PoolTimeoutError(), GONE])
def test_a_server_that_does_not_answer_may_be_asked_again(error: Exception) -> None:
    assert is_unavailable(error)


@pytest.mark.parametrize("state", ["22P02", "22003", "23505", "54000"])
def test_bad_content_is_refused_for_good(state: str) -> None:
    assert is_content_fault(refused(state))
    assert not is_unavailable(refused(state))


def test_what_the_driver_cannot_encode_is_bad_content() -> None:
    error = refused(None, cause=asyncpg.DataError("value out of range"))
    assert is_content_fault(error)
    assert not is_unavailable(error)


@pytest.mark.parametrize("error", [refused("42601"), refused("42501"), TOO_MANY, ValueError()])
def test_a_mistake_of_ours_is_neither(error: Exception) -> None:
    assert not is_unavailable(error)
    assert not is_content_fault(error)


def test_a_missing_partition_is_told_from_other_violated_checks() -> None:
    assert is_missing_partition(refused("23514", 'no partition of relation "check_results" found for row'))
    assert not is_missing_partition(refused("23514", "violates check constraint"))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+asyncpg"])
def test_every_spelling_of_the_scheme_is_understood(scheme: str) -> None:
    assert parse_url(f"{scheme}://a:b@host:1/d").render_as_string(False) == "postgresql+asyncpg://a:b@host:1/d"


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://a/b", "postgresql://host:port/d"])
def test_a_wrong_url_is_told_without_repeating_it(url: str) -> None:
    with pytest.raises(DatabaseUnusableError, match="TOCSIN_DATABASE_URL must look like"):
        parse_url(url)
