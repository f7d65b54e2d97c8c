"""What pydantic found is told in the words of the one who wrote it: the field, and the reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from shared.domain.monitor import MonitorSpec
from shared.services.errors import InvalidInputError, Problem

URL = "https://shop.example/"


def problems(**fields: Any) -> list[Problem]:
    with pytest.raises(ValidationError) as refused:
        MonitorSpec.model_validate({"name": "Shop", "check": {"kind": "http", "url": URL}, **fields})
    return InvalidInputError.of(refused.value.errors()).problems


def test_the_kind_that_chose_a_class_is_no_part_of_the_path() -> None:
    check = {"kind": "http", "url": URL, "auth": {"kind": "bearer", "token": ""}}
    (problem,) = problems(check=check)
    assert problem.field == "check.auth.token"


def test_a_rule_over_several_fields_names_the_one_to_mend() -> None:
    (problem,) = problems(interval_seconds=5, timeout_seconds=10)
    assert problem.field == "timeout_seconds"
    assert problem.reason.startswith("timeout_seconds (10) must not exceed interval_seconds (5)")
    (problem,) = problems(check={"kind": "http", "url": URL, "method": "HEAD", "body": "x"})
    assert problem.field == "check.body"
    assert problem.reason.startswith("a HEAD request")


def test_every_wrong_field_is_named_at_once() -> None:
    assert {problem.field for problem in problems(name="", interval_seconds=1, nope=1)} == {
        "name",
        "interval_seconds",
        "nope",
    }


def test_reasons_are_written_for_people() -> None:
    assert not any("Value error" in problem.reason for problem in problems(name="a\nb", regions=["A"]))
