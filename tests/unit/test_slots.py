"""Slots are the same for everybody, spread evenly, and none is between two of them."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.slots import SETTLING_MS, Cadence, latest_slot_ms, next_slot_ms, phase_ms, slots_between

MONITOR = UUID("0190c7a1-7e8f-7000-8000-000000000001")
cadences = st.builds(
    Cadence, st.uuids(), st.integers(5_000, 86_400_000), st.integers(1_600_000_000_000, 1_900_000_000_000)
)


def test_the_first_slot_is_the_starting_point() -> None:
    cadence = Cadence(MONITOR, 60_000, 1_800_000_000_123)
    assert next_slot_ms(cadence, 0) == 1_800_000_000_123
    assert latest_slot_ms(cadence, 1_800_000_000_122) is None
    assert latest_slot_ms(cadence, 1_800_000_000_123) == 1_800_000_000_123


def test_an_interval_must_be_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        Cadence(MONITOR, 0, 0)


def test_slots_do_not_depend_on_when_the_monitor_started() -> None:
    early = Cadence(MONITOR, 30_000, 1_800_000_000_000)
    late = Cadence(MONITOR, 30_000, 1_800_000_100_000)
    assert next_slot_ms(early, 1_800_000_200_000) == next_slot_ms(late, 1_800_000_200_000)


@given(cadences, st.integers(0, 10_000_000_000))
def test_next_and_latest_agree(cadence: Cadence, offset: int) -> None:
    at = cadence.starts_at_ms + offset
    latest = latest_slot_ms(cadence, at)
    assert latest is not None
    assert latest <= at < next_slot_ms(cadence, at)
    assert next_slot_ms(cadence, latest - 1) == latest
    assert next_slot_ms(cadence, at) - latest <= cadence.interval_ms + SETTLING_MS


@given(cadences)
def test_the_second_slot_leaves_the_first_one_time_to_be_run(cadence: Cadence) -> None:
    second = next_slot_ms(cadence, cadence.starts_at_ms)
    assert SETTLING_MS < second - cadence.starts_at_ms <= cadence.interval_ms + SETTLING_MS


@given(cadences)
def test_after_the_first_slots_keep_the_interval(cadence: Cadence) -> None:
    start = cadence.starts_at_ms + SETTLING_MS
    slots = list(slots_between(cadence, start, start + 5 * cadence.interval_ms))
    assert len(slots) == 5
    assert {later - earlier for earlier, later in itertools.pairwise(slots)} == {cadence.interval_ms}


@settings(max_examples=25)
@given(st.integers(0), st.sampled_from([5_000, 10_000, 20_000]))
def test_load_in_any_second_is_at_most_twice_the_mean_at_a_thousand_monitors(seed: int, interval: int) -> None:
    # Dice, not a guarantee: at 50 monitors a second, twice the mean is seven standard deviations away. With
    # longer intervals the mean falls to a few monitors a second, and twice a few is no load.
    random = Random(seed)
    ids = [UUID(int=random.getrandbits(128)) for _ in range(1000)]
    seconds = Counter(phase_ms(monitor_id, interval) // 1000 for monitor_id in ids)
    assert max(seconds.values()) <= 2 * 1000 / (interval / 1000)
