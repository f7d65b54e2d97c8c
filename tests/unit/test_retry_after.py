"""How long another side asks us to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.retry_after import retry_after

NOW_MS = 1_772_600_767_000  # Wed, 04 Mar 2026 05:06:07 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3"}, 3.0),
        ({"retry-after": " 120 "}, 120.0),
        ({"RETRY-AFTER": "0"}, 0.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "999999"}, 999_999.0),
        ({"Retry-After": "Wed, 04 Mar 2026 05:06:17 GMT"}, 10.0),
        ({"Retry-After": "Wednesday, 04-Mar-26 05:06:17 GMT"}, 10.0),
        ({"Retry-After": "Wed Mar  4 05:06:17 2026"}, 10.0),
        ({"Retry-After": "Wed, 04 Mar 2026 05:06:07 GMT"}, 0.0),
        ({"Retry-After": "Wed, 04 Mar 2020 05:06:07 GMT"}, 0.0),
        ({"Retry-After": "Wed, 04 Mar 2026 06:00:10 GMT", "Date": "Wed, 04 Mar 2026 06:00:00 GMT"}, 10.0),
        ({"Retry-After": "Wed, 04 Mar 2026 05:06:17 GMT", "date": "yesterday"}, 10.0),
        ({"Retry-After": "Wed, 99 Mar 2026 05:06:17 GMT"}, None),
        ({"Retry-After": "Wed, 04 Mar 2026 05:06:17 -0000"}, 10.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "+1"}, None),
        ({"Retry-After": "1_0"}, None),
        ({"Retry-After": "1e3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "٣"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({}, None),
    ],
    ids=str,
)
def test_how_long_a_service_asks_us_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW_MS) == seconds


@given(st.text(), st.text())
def test_no_text_of_the_other_side_breaks_it(value: str, date: str) -> None:
    wait = retry_after({"Retry-After": value, "Date": date}, NOW_MS)
    assert wait is None or 0 <= wait < 10**15
