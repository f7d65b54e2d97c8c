from __future__ import annotations

import math
import random
import socket
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from shared.messaging.errors import PublishRejectedError, PublishUnknownError
from shared.tasks.errors import GiveUp, RetryLater
from shared.tasks.failures import (
    MESSAGE_LIMIT,
    RETRY_AFTER_CAP_SECONDS,
    kind_of,
    message_of,
    requested_wait,
)
from shared.tasks.policy import NO_RETRY, RetryPolicy, next_delay

NOON_MS = 1_796_040_000_000  # 2026-11-30 12:00:00 UTC
POLICY = RetryPolicy(attempts=4, delay=5, jitter=0)


class AnsweredError(Exception):
    """What an HTTP client raises, in either of the two usual forms."""

    def __init__(self, status: int, headers: dict[str, str] | None = None, *, on_response: bool = False) -> None:
        super().__init__(f"status {status}")
        holder: Any = SimpleNamespace() if on_response else self
        holder.status_code, holder.headers = status, headers or {}
        if on_response:
            self.response = holder


class OursError(Exception):
    """An error that the layer knows nothing about."""


PASSING = [
    TimeoutError(),
    ConnectionResetError(),
    socket.gaierror(),
    OSError(113, "no route"),
    PublishUnknownError("no answer"),
    OperationalError("SELECT 1", {}, ConnectionRefusedError(), connection_invalidated=True),
    RetryLater(),
    *(AnsweredError(status) for status in (408, 425, 429, 500, 503)),
    AnsweredError(502, on_response=True),
]
LASTING = [
    GiveUp("no"),
    ValueError(),
    TypeError(),
    AttributeError(),
    KeyError(),
    AssertionError(),
    NotImplementedError(),
    FileNotFoundError(),
    PermissionError(),
    msgspec.ValidationError(),
    PublishRejectedError(400, 0, "too large"),
    OursError(),
    *(AnsweredError(status) for status in (400, 401, 403, 404, 410, 422)),
]


def _names(errors: list[Exception]) -> list[str]:
    return [
        f"{type(error).__name__}-{getattr(error, 'status_code', number)}" for number, error in enumerate(errors)
    ]


@pytest.mark.parametrize("error", PASSING, ids=_names(PASSING))
def test_what_may_pass_is_retried(error: Exception) -> None:
    assert POLICY.should_retry(1, error)
    assert not POLICY.should_retry(4, error), "the fourth of four attempts is the last"
    assert not NO_RETRY.should_retry(1, error)


@pytest.mark.parametrize("error", LASTING, ids=_names(LASTING))
def test_what_fails_the_same_way_each_time_is_not_retried(error: Exception) -> None:
    assert not POLICY.should_retry(1, error)


def test_a_policy_adds_errors_and_takes_errors_away_and_the_task_has_the_last_word() -> None:
    policy = RetryPolicy(
        attempts=9, delay=1, retry_on=(OursError, LookupError), give_up_on=(KeyError, TimeoutError)
    )
    assert [policy.should_retry(1, error) for error in (OursError(), IndexError(), ConnectionError())] == [True] * 3
    assert [policy.should_retry(1, error) for error in (KeyError(), TimeoutError(), ValueError())] == [False] * 3
    all_errors = RetryPolicy(attempts=9, delay=1, retry_on=(Exception,), give_up_on=(Exception,))
    assert all_errors.should_retry(1, RetryLater())
    assert not RetryPolicy(attempts=9, delay=1, retry_on=(Exception,)).should_retry(1, GiveUp())


def test_delays_without_jitter_grow_by_the_factor_up_to_the_maximum() -> None:
    assert [POLICY.get_delay(attempt) for attempt in (1, 2, 3)] == [5, 10, 20]
    capped = RetryPolicy(attempts=9, delay=5, maximum=12, jitter=0)
    assert [capped.get_delay(attempt) for attempt in (1, 2, 3, 9)] == [5, 10, 12, 12]


@given(attempt=st.integers(1, 99), jitter=st.floats(0, 0.5), seed=st.integers())
def test_jitter_stays_within_its_share(attempt: int, jitter: float, seed: int) -> None:
    policy = RetryPolicy(attempts=100, delay=2, factor=3, maximum=600, jitter=jitter)
    middle = min(2 * 3.0 ** (attempt - 1), 600)
    delay = next_delay(policy, attempt, TimeoutError(), spent=0, now_ms=NOON_MS, rng=random.Random(seed))
    assert delay is not None
    assert middle * (1 - jitter) - 1e-9 <= delay <= middle * (1 + jitter) + 1e-9


def test_jitter_spreads_waits_over_a_tenth_to_either_side_unless_said_otherwise() -> None:
    policy, rng = RetryPolicy(attempts=2, delay=100), random.Random(1)
    delays = [next_delay(policy, 1, TimeoutError(), spent=0, now_ms=NOON_MS, rng=rng) or 0.0 for _ in range(500)]
    assert 90 <= min(delays) < 91
    assert 109 < max(delays) <= 110


class Own(RetryPolicy):
    """As an author writes one: a pause of its own, and more patience with one kind of error."""

    def should_retry(self, attempt: int, error: BaseException) -> bool:
        return attempt < (5 if isinstance(error, OursError) else 2)

    def get_delay(self, attempt: int) -> float:
        return 7.0 * attempt


def test_a_policy_of_its_own_decides_whether_and_when() -> None:
    def delay(attempt: int, error: Exception) -> float | None:
        return next_delay(Own(jitter=0), attempt, error, spent=0, now_ms=NOON_MS)

    assert [delay(attempt, OursError()) for attempt in (1, 4, 5)] == [7, 28, None]
    assert [delay(attempt, ValueError()) for attempt in (1, 2)] == [7, None]
    assert delay(1, AnsweredError(429, {"Retry-After": "30"})) == 30


class Broken(RetryPolicy):
    """``delay`` is what it answers, or raises."""

    def get_delay(self, attempt: int) -> float:  # noqa: ARG002 as a policy has it
        if self.delay < -1:
            raise RuntimeError
        return self.delay


@pytest.mark.parametrize("delay", [0.0, -1.0, math.nan, math.inf, -2.0], ids=["0", "-1", "nan", "inf", "raises"])
def test_a_policy_that_fails_ends_the_task_and_is_told(delay: float) -> None:
    with capture_logs() as logs:
        found = next_delay(Broken(attempts=3, delay=delay), 1, TimeoutError(), spent=0, now_ms=NOON_MS)
    assert found is None
    assert [(line["log_level"], line["policy"]) for line in logs] == [("error", "Broken")]


def test_the_budget_ends_the_attempts() -> None:
    policy = RetryPolicy(attempts=4, delay=5, jitter=0, budget=30)
    error = TimeoutError()
    assert next_delay(policy, 3, error, spent=10, now_ms=NOON_MS) == 20
    assert next_delay(policy, 3, error, spent=10.1, now_ms=NOON_MS) is None


def test_what_the_other_side_asks_for_makes_a_wait_longer_and_never_shorter() -> None:
    for asked, expected in (("30", 30), ("1", 5), ("nonsense", 5), (str(10**9), RETRY_AFTER_CAP_SECONDS)):
        error = AnsweredError(429, {"Retry-After": asked}, on_response=True)
        assert next_delay(POLICY, 1, error, spent=0, now_ms=NOON_MS) == expected
    assert next_delay(POLICY, 1, RetryLater(after=7), spent=0, now_ms=NOON_MS) == 7
    within = RetryPolicy(attempts=4, delay=5, jitter=0, budget=60)
    late = AnsweredError(429, {"retry-after": "61"})
    assert next_delay(within, 1, late, spent=0, now_ms=NOON_MS) is None


@given(st.text())
def test_no_text_of_the_other_side_breaks_retry_after(value: str) -> None:
    wait = requested_wait(AnsweredError(429, {"Retry-After": value}), NOON_MS)
    assert wait is None or 0 <= wait <= RETRY_AFTER_CAP_SECONDS


def test_kinds_are_short_words() -> None:
    errors = (TimeoutError(), ConnectionResetError(), AnsweredError(503), GiveUp(), RetryLater(), OursError())
    assert [kind_of(error) for error in errors] == [
        "timeout",
        "connection_error",
        "http_503",
        "gave_up",
        "retry_later",
        "OursError",
    ]
    assert kind_of(msgspec.ValidationError("x")) == "invalid_argument"


def test_messages_are_one_bounded_line_without_the_secrets_of_urls() -> None:
    assert message_of(ValueError("a\n b")) == "a b"
    assert message_of(ValueError()) == "ValueError"
    assert message_of(ValueError("refus\udce9 \0")) == "refus? \N{REPLACEMENT CHARACTER}"
    assert "hunter2" not in message_of(ValueError("https://bob:hunter2@hooks.example/?token=hunter2"))
    assert len(message_of(ValueError("x" * 9999))) == MESSAGE_LIMIT
