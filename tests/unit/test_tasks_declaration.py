from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from shared.tasks.declaration import TaskContext, TaskSet
from shared.tasks.errors import DeclarationError
from shared.tasks.policy import RetryPolicy


class Order(msgspec.Struct):
    number: int


async def work(order: Order, context: TaskContext[list[int]]) -> None:
    context.resources.append(order.number)


def blocking(order: Order, context: TaskContext[list[int]]) -> None:
    """What somebody writes who forgot async."""


async def argument_only(order: Order) -> None:
    """What somebody writes who forgot the context."""


def policy(**fields: Any) -> RetryPolicy:
    return RetryPolicy(**{"attempts": 3, "delay": 1, "jitter": 0, **fields})


class Own(RetryPolicy):
    """A policy that decides by itself: ``factor`` is what it waits."""

    def get_delay(self, attempt: int) -> float:  # noqa: ARG002 as a policy has it
        return self.factor


class Endless(Own):
    def should_retry(self, attempt: int, error: BaseException) -> bool:  # noqa: ARG002 as a policy has it
        return True


class Twice(Own):
    def should_retry(self, attempt: int, error: BaseException) -> bool:  # noqa: ARG002 as a policy has it
        return attempt < 2


class Misspelt(RetryPolicy):
    def get_delay(self) -> float:  # type: ignore[override]  # what somebody writes who forgot a parameter
        return 1.0


GOOD: dict[str, Any] = {"argument": Order, "timeout": 10, "retry": policy(), "idempotent": True}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "attempts without end": ({"retry": policy(attempts=None)}, "give a number from 1 to 100"),
    "infinite attempts": ({"retry": policy(attempts=math.inf)}, "give a number from 1 to 100"),
    "no attempt": ({"retry": policy(attempts=0)}, "give a number from 1 to 100"),
    "attempts as good as unlimited": ({"retry": policy(attempts=101)}, "give at most 100"),
    "no delay": ({"retry": policy(delay=0)}, "give the seconds before the second attempt"),
    "a negative delay": ({"retry": policy(delay=-1)}, "give the seconds before the second attempt"),
    "a delay that is no number": ({"retry": policy(delay=math.nan)}, "give the seconds before"),
    "shrinking delays": ({"retry": policy(factor=0.5)}, "give 1 (equal waits) to 100"),
    "a maximum below the delay": ({"retry": policy(delay=5, maximum=1)}, "raise maximum"),
    "a jitter of all": ({"retry": policy(jitter=1)}, "give a number from 0 to 0.5"),
    "a timeout over the budget": ({"timeout": 60, "retry": policy(budget=50)}, "shorten the timeout or raise"),
    "a budget below the waits": ({"timeout": 1, "retry": policy(budget=2.9)}, "raise the budget, or have fewer"),
    "a budget below waits and timeouts": ({"retry": policy(budget=32)}, "need 33 seconds): raise the budget"),
    "a delay of zero by its own decision": ({"retry": Own(attempts=2, factor=0)}, "give the seconds to wait"),
    "retries that never end by its own decision": (
        {"retry": Endless()},
        "let it answer False from some attempt on",
    ),
    "a decision of another form": ({"retry": Misspelt(attempts=2)}, "get_delay(self, attempt)"),
    "a budget below waits of its own": (
        {"timeout": 1, "retry": Own(attempts=3, factor=60, jitter=0, budget=122)},
        "need 123 seconds): raise the budget",
    ),
    "its own retries that may do it twice": ({"idempotent": False, "retry": Twice()}, "say idempotent=True"),
    "no timeout": ({"timeout": 0}, "give more than 0, at most 900"),
    "an endless timeout": ({"timeout": math.inf}, "give more than 0, at most 900"),
    "a retry that may do it twice": ({"idempotent": False}, "say idempotent=True, or drop the retries"),
    "an argument that is no record": ({"argument": dict}, "put the values into one"),
}


@pytest.mark.parametrize(("changed", "mend"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_declaration_fails_at_import_and_says_the_mend(changed: dict[str, Any], mend: str) -> None:
    tasks: TaskSet[list[int]] = TaskSet()
    with pytest.raises(DeclarationError) as failure:
        tasks.declare("work", **{**GOOD, **changed})(work)
    assert mend in str(failure.value)
    assert "'work'" in str(failure.value)
    assert list(tasks) == []


@pytest.mark.parametrize(
    ("function", "mend"), [(blocking, "write it as async def"), (argument_only, "write (argument, context)")]
)
def test_a_function_that_cannot_be_a_task_is_refused(function: Any, mend: str) -> None:
    with pytest.raises(DeclarationError, match=mend.replace("(", r"\(").replace(")", r"\)")):
        TaskSet[list[int]]().declare("work", **GOOD)(function)


@pytest.mark.parametrize("name", ["", "Work", "1st", "deliver-mail", "a.b", "a b", "ä", "x" * 65])
def test_a_name_that_is_no_part_of_a_subject_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match="rename it"):
        TaskSet[list[int]]().declare(name, **GOOD)(work)


def test_a_name_is_given_once() -> None:
    tasks: TaskSet[list[int]] = TaskSet()
    tasks.declare("work", **GOOD)(work)
    with pytest.raises(DeclarationError, match="another name"):
        tasks.declare("work", **GOOD)(work)


def test_a_budget_that_just_suffices_is_accepted() -> None:
    TaskSet[list[int]]().declare("work", **{**GOOD, "retry": policy(budget=33)})(work)


def test_a_policy_of_its_own_needs_no_delay_for_its_fields() -> None:
    TaskSet[list[int]]().declare("work", **{**GOOD, "retry": Twice(factor=60)})(work)


def test_a_task_that_is_tried_once_needs_no_policy_and_no_mark() -> None:
    TaskSet[list[int]]().declare("work", argument=Order, timeout=1)(work)


async def test_a_task_can_be_called_like_the_function_it_was() -> None:
    seen: list[int] = []
    task = TaskSet[list[int]]().declare("work", argument=Order, timeout=1)(work)
    await task(Order(3), TaskContext("id", 1, None, seen))
    assert seen == [3]
