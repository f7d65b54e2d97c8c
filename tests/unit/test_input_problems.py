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


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"interval_seconds": 10, "timeout_seconds": 10}, id="no room behind the timeout"),
        pytest.param({"interval_seconds": 10, "timeout_seconds": 8.9}, id="no room for the first attempt"),
        pytest.param({"interval_seconds": 60, "timeout_seconds": 30, "retry_delay_seconds": 30}, id="10 % more"),
        pytest.param({"interval_seconds": 5, "retry_delay_seconds": 60}, id="no room for any timeout"),
    ],
)
def test_retries_that_would_never_be_run_are_refused(fields: dict[str, Any]) -> None:
    (problem,) = problems(retries=1, **fields)
    assert problem.field == "retries"
    assert "lower one of them" in problem.reason


@pytest.mark.parametrize(
    ("fields", "timeout"),
    [
        pytest.param({"interval_seconds": 60, "retries": 5}, 10.0, id="room enough"),
        pytest.param({"interval_seconds": 5}, 5.0, id="a short interval"),
        pytest.param({"interval_seconds": 10, "retries": 1}, 4.4, id="room for two attempts"),
        pytest.param({"interval_seconds": 5, "retries": 1, "retry_delay_seconds": 0}, 2.5, id="without a delay"),
        pytest.param({"interval_seconds": 20, "retries": 0, "retry_delay_seconds": 60}, 10.0, id="none wanted"),
    ],
)
def test_the_default_timeout_makes_room_for_what_was_asked_for(fields: dict[str, Any], timeout: float) -> None:
    monitor = MonitorSpec.model_validate({"name": "Shop", "check": {"kind": "http", "url": URL}, **fields})
    assert monitor.timeout_seconds == timeout


def test_every_wrong_field_is_named_at_once() -> None:
    assert {problem.field for problem in problems(name="", interval_seconds=1, nope=1)} == {
        "name",
        "interval_seconds",
        "nope",
    }


def test_reasons_are_written_for_people() -> None:
    assert problems(nope=1) == [Problem("nope", "there is no such field")]
    assert not any("Value error" in problem.reason for problem in problems(name="a\nb", regions=["A"]))
