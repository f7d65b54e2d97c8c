"""What two clocks say about each other, with the time between question and answer taken into account."""

from __future__ import annotations

import pytest

from shared.services.doctor.clocks import compared


@pytest.mark.parametrize(
    ("asked_ms", "told_ms", "answered_ms", "said"),
    [
        pytest.param(90_000, 0, 90_010, "90.0 s ahead of that of NATS", id="ahead"),
        pytest.param(0, 90_010, 10, "90.0 s behind that of NATS", id="behind"),
        pytest.param(1_001, 0, 1_001, "1.0 s ahead of that of NATS", id="just too far"),
        pytest.param(1_000, 0, 1_000, None, id="just near enough"),
        pytest.param(0, 5_000, 10_000, None, id="a slow answer"),
        pytest.param(1_000, 0, 60_000, None, id="a little ahead and a slow answer"),
    ],
)
def test_a_difference_is_told_when_no_delay_explains_it(
    asked_ms: int, told_ms: int, answered_ms: int, said: str | None
) -> None:
    found = [finding.what for finding in compared("NATS", asked_ms, told_ms, answered_ms)]
    assert found == ([f"this machine's clock is {said}"] if said else [])
