"""The page about checks says what the code does."""

from __future__ import annotations

import ast
import importlib
import re
from configparser import ConfigParser
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


@pytest.mark.parametrize("page", ["jobs.md", "tasks.md"])
def test_code_to_copy_imports_what_there_is(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    imports = [
        (node.module, name.name)
        for block in blocks
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    ]
    assert imports
    missing = [each for each in imports if not hasattr(importlib.import_module(str(each[0])), each[1])]
    assert missing == []


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    contracts = ConfigParser()
    contracts.read(DOCS.parent / ".importlinter")
    checked = [
        layer
        for contract in ("applications", "layers")
        for layer in contracts[f"importlinter:contract:{contract}"]["layers"].split("\n")
        if layer
    ]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Layers")[2]
    drawn = [line.partition("   ")[0] for line in page.split("```")[1].strip().splitlines()]
    assert [line.replace("shared.", "").strip() for line in drawn] == checked
