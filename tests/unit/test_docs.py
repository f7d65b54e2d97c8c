"""The page about checks says what the code does."""

from __future__ import annotations

import pytest

from cli.docs import MEANINGS, PAGE, main, rendered
from shared.domain.errors import ErrorKind


def test_the_page_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run: python -m cli.docs"


def test_every_error_kind_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorKind)


def test_a_table_that_is_out_of_date_is_replaced() -> None:
    page = "a\n<!-- table: bearer -->\nold\n<!-- end -->\nb\n"
    new = rendered(page)
    assert "old" not in new
    assert "| `token` | text, at most 8192 | required | Secret. |" in new
    assert rendered(new) == new


def test_a_table_that_does_not_exist_is_refused() -> None:
    with pytest.raises(KeyError):
        rendered("<!-- table: nothing -->\n<!-- end -->")


def test_the_page_names_every_option() -> None:
    assert "`client_certificate`" in PAGE.read_text(encoding="utf-8")
