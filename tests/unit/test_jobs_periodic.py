"""A job's declaration: what it attaches, and what it refuses at import, with the mend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shared.jobs.context import JobContext
from shared.jobs.errors import JobDeclarationError
from shared.jobs.periodic import JobSpecification, by_name, periodic, specification_of


def declare(name: str = "unit_probe", **changes: str) -> Callable[..., Any]:
    """A good declaration, with changes."""
    good = {"every": "15m", "lock": "5m", "timeout": "2m", "silence_after": "1h"}
    return periodic(name, **{**good, **changes})  # type: ignore[arg-type]  # a table of wrong values


def test_the_specification_is_attached_and_the_function_is_callable_as_it_was() -> None:
    async def tidy(context: JobContext) -> None:
        """Tidy up."""

    declared = declare("unit_tidy", every="30s", silence_after="1d")(tidy)
    assert declared is tidy
    assert specification_of(tidy) == JobSpecification("unit_tidy", 30, 300, 120, 86_400)
    assert by_name([tidy]) == {"unit_tidy": tidy}


def test_a_method_is_a_job_of_its_object() -> None:
    class Desk:
        @declare("unit_method", every="2h", silence_after="1d")
        async def tidy(self, context: JobContext) -> None: ...

    assert specification_of(Desk().tidy).every_seconds == 7_200
    assert specification_of(Desk.tidy) == specification_of(Desk().tidy)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"every": "15"}, "every='15' is no duration; write a number and s, m, h or d"),
        ({"every": "0s"}, "every='0s' is no duration"),
        ({"lock": "5 m"}, "lock='5 m' is no duration"),
        ({"timeout": "1.5h"}, "timeout='1.5h' is no duration"),
        ({"silence_after": "-1h"}, "silence_after='-1h' is no duration"),
        ({"lock": "1m"}, "is shorter than its timeout (120 s); make lock at least as long as timeout"),
        ({"silence_after": "10m"}, "before it is due again (900 s); make silence_after at least as long as every"),
    ],
)
def test_a_wrong_declaration_names_the_job_the_problem_and_the_mend(changes: dict[str, str], said: str) -> None:
    with pytest.raises(JobDeclarationError) as refused:
        declare(**changes)
    assert str(refused.value).startswith("job 'unit_probe': ")
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["", "Tidy", "tidy up", "tidy.up", "7days", "x" * 64])
def test_a_name_that_can_not_be_a_key_is_refused(name: str) -> None:
    with pytest.raises(JobDeclarationError, match="up to 63 lower-case letters, digits and _"):
        declare(name)


def test_a_function_that_is_not_async_is_refused() -> None:
    with pytest.raises(JobDeclarationError, match="its function is not async; write async def"):

        @declare("unit_sync")
        def tidy(context: JobContext) -> None: ...


def test_a_second_job_of_the_same_name_is_refused() -> None:
    @declare("unit_twice")
    async def first(context: JobContext) -> None: ...

    with pytest.raises(JobDeclarationError, match="first has this name already; choose another name"):

        @declare("unit_twice")
        async def second(context: JobContext) -> None: ...


def test_a_function_without_declaration_is_no_job() -> None:
    async def tidy(context: JobContext) -> None: ...

    with pytest.raises(JobDeclarationError, match="declare it with @periodic"):
        specification_of(tidy)
