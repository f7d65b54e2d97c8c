"""One line a second, however many slots an outage befalls."""

from __future__ import annotations

from typing import Any

from monitoring_scheduler.tally import EVERY_SECONDS, Tally
from shared.testing.clock import FakeClock


def test_the_first_is_said_at_once_and_the_others_together() -> None:
    clock, lines = FakeClock(0), list[tuple[str, dict[str, Any]]]()
    tally = Tally(lambda event, **words: lines.append((event, words)), "slots were not acknowledged", clock)
    tally.say()
    for number in range(1000):
        tally.add(slot=f"slot {number}")
    assert lines == [("slots were not acknowledged", {"slots": 1, "slot": "slot 0"})]
    clock.advance(EVERY_SECONDS)
    tally.say()
    assert lines[1:] == [("slots were not acknowledged", {"slots": 999, "slot": "slot 999"})]
    clock.advance(EVERY_SECONDS)
    tally.say()
    assert len(lines) == 2, "nothing happened since"
