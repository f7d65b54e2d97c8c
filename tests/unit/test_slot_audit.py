"""From where to where the slot audit looks: all since the last time, hour by hour, and nothing that was dropped."""

from __future__ import annotations

import itertools

import pytest

from shared.domain.audit import LONGEST_SETTLING_MS
from shared.services.slot_audit import FIRST_LOOK_MS, LENGTH_MS, STEP_MS, audit_steps, audited_until

NOW = 1_800_000_000_000
DAY = 86_400_000
MINUTE = 60_000


@pytest.mark.parametrize("behind_ms", [0, MINUTE, LENGTH_MS, STEP_MS, STEP_MS + 1, 7 * STEP_MS, 40 * DAY])
def test_the_steps_leave_no_gap_and_end_now(behind_ms: int) -> None:
    steps = list(audit_steps(NOW - behind_ms, NOW))
    assert steps[-1][0] == NOW
    assert steps[0][0] - steps[0][1] <= NOW - behind_ms
    for (before, _), (moment, length) in itertools.pairwise(steps):
        assert moment - length <= before < moment
    assert all(LENGTH_MS <= length <= STEP_MS for _, length in steps)


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param(None, NOW - FIRST_LOOK_MS, id="the first time"),
        pytest.param({"audited_until_ms": NOW - MINUTE}, NOW - MINUTE, id="as always"),
        pytest.param({"audited_until_ms": NOW - 20 * DAY}, NOW - 20 * DAY, id="after a long outage"),
        pytest.param({"audited_until_ms": NOW + DAY}, NOW, id="a clock that went back"),
    ],
)
def test_it_goes_on_where_it_came_to(checkpoint: dict[str, int] | None, expected: int) -> None:
    assert audited_until(checkpoint, NOW, 90) == expected


def test_it_never_looks_at_days_that_were_dropped() -> None:
    first = audited_until({"audited_until_ms": 0}, NOW, 90)
    oldest_looked_at = first - STEP_MS - LONGEST_SETTLING_MS
    dropped_before = NOW - NOW % DAY - 90 * DAY
    assert dropped_before <= oldest_looked_at < dropped_before + DAY
