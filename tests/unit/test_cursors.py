"""Cursors survive the way to the client and back, and nothing else is one."""

from __future__ import annotations

import pytest

from api.cursors import id_cursor, read_id_cursor, read_result_cursor, result_cursor
from api.errors import ApiError
from shared.db.base import new_id
from shared.domain.clock import to_datetime


def test_cursors_read_back_as_they_were_made() -> None:
    last = new_id()
    assert read_id_cursor(id_cursor(last)) == last
    for milliseconds in (0, 1_800_000_000_123):
        place = (to_datetime(milliseconds), "eu-west_1")
        assert read_result_cursor(result_cursor(*place)) == place
    assert read_id_cursor(None) is None
    assert read_result_cursor(None) is None


@pytest.mark.parametrize("forged", ["", "x", "====", "é", "\0", "AAAA", "99999999999999999999", "LTEuZGVmYXVsdA"])
def test_a_forged_cursor_is_a_422_that_names_it(forged: str) -> None:
    for read in (read_id_cursor, read_result_cursor):
        with pytest.raises(ApiError) as refused:
            read(forged)
        assert refused.value.status_code == 422
        assert refused.value.problems[0].field == "cursor"


def test_a_cursor_of_one_list_is_none_of_another() -> None:
    with pytest.raises(ApiError):
        read_result_cursor(id_cursor(new_id()))
    with pytest.raises(ApiError):
        read_id_cursor(result_cursor(to_datetime(5), "default"))
