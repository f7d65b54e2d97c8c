"""The page about checks says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cli import docs_settings
from cli.docs import MEANINGS, PAGE, main, rendered
from shared.domain.clock import SystemClock
from shared.domain.errors import ErrorKind
from shared.services.doctor.database import database_checks
from shared.services.doctor.queue import queue_checks
from shared.services.doctor.work import work_checks

DOCS = PAGE.parent


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


def test_every_setting_is_explained_in_the_table_of_settings() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    for variable, _, _, _, meaning in docs_settings.rows():
        assert meaning, f"{variable} has no description"
        assert f"| {variable} |" in page, f"{variable}: run python -m cli.docs"


def test_every_check_of_the_doctor_is_explained() -> None:
    page = (DOCS / "doctor.md").read_text(encoding="utf-8")
    nobody: Any = None
    checks = {
        **database_checks(nobody, None, SystemClock()),
        **queue_checks(nobody, 1, SystemClock()),
        **work_checks(nobody, nobody, SystemClock()),
    }
    assert [name for name in checks if name not in page] == []


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
