"""When a child is started again, as a table."""

from __future__ import annotations

from functools import reduce

import pytest

from cli.restart import EXIT_CONFIGURATION, MAX_FAILED_STARTS, STEADY_SECONDS, History, Life

FAILED_START = Life(exit_code=1, ready_seconds=None)
MISCONFIGURED = Life(exit_code=EXIT_CONFIGURATION, ready_seconds=None)
SHORT = Life(exit_code=1, ready_seconds=STEADY_SECONDS - 1)
STEADY = Life(exit_code=-9, ready_seconds=STEADY_SECONDS)


def history(*lives: Life) -> History:
    return reduce(History.after, lives, History())


@pytest.mark.parametrize(
    ("lives", "delay"),
    [
        ([STEADY], 0.5),
        ([FAILED_START], 0.5),
        ([FAILED_START] * 2, 1),
        ([SHORT] * 3, 2),
        ([SHORT] * 4, 4),
        ([SHORT] * 5, 8),
        ([SHORT] * 6, 10),
        ([SHORT] * 60, 10),
        ([SHORT] * 6 + [STEADY], 0.5),
        ([SHORT] * 6 + [STEADY, SHORT], 0.5),
        ([SHORT] * 6 + [STEADY, SHORT, FAILED_START], 1),
        ([STEADY] * 100, 0.5),
    ],
)
def test_the_delay_doubles_until_a_child_was_ready_for_a_while(lives: list[Life], delay: float) -> None:
    assert history(*lives).delay_seconds == delay


@pytest.mark.parametrize(
    ("lives", "hopeless"),
    [
        ([FAILED_START] * (MAX_FAILED_STARTS - 1), False),
        ([FAILED_START] * MAX_FAILED_STARTS, True),
        ([MISCONFIGURED], True),
        ([FAILED_START, MISCONFIGURED], True),
        ([SHORT, MISCONFIGURED], False),
        ([SHORT, *[FAILED_START] * 50], False),
        ([STEADY] * 50, False),
        ([SHORT] * 50, False),
    ],
)
def test_only_a_child_that_was_never_ready_is_given_up(lives: list[Life], *, hopeless: bool) -> None:
    assert history(*lives).hopeless is hopeless
