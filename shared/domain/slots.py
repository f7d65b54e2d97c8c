"""When a monitor is due: a pure function of its id, interval and starting point, so every process agrees.

A monitor's slots are its starting point itself (a new or changed monitor is checked at once) and then
``phase + n × interval``, leaving out one that would follow the first within moments. The phase is a hash of the id:
it spreads monitors evenly over their interval, and a restart or another leader computes the very same slots, which
is what makes a message id of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID

# Half the shortest interval: two checks closer than this tell no more than one, and the first one is on its way
# through the queue when the second is due.
SETTLING_MS = 2_500


@dataclass(frozen=True, slots=True)
class Cadence:
    """One span of unchanged timing of a monitor; all times are wall-clock milliseconds since 1970."""

    monitor_id: UUID
    interval_ms: int
    starts_at_ms: int

    def __post_init__(self) -> None:
        if self.interval_ms <= 0:
            raise ValueError("an interval has to be positive")


def phase_ms(monitor_id: UUID, interval_ms: int) -> int:
    """Where in its interval a monitor is due: 0 ≤ phase < interval, evenly spread over ids."""
    return int.from_bytes(blake2b(monitor_id.bytes, digest_size=8).digest()) % interval_ms


def next_slot_ms(cadence: Cadence, after_ms: int) -> int:
    """The first slot later than ``after_ms``."""
    if after_ms < cadence.starts_at_ms:
        return cadence.starts_at_ms
    after = max(after_ms, cadence.starts_at_ms + SETTLING_MS)
    return after + cadence.interval_ms - (after - _phase_of(cadence)) % cadence.interval_ms


def latest_slot_ms(cadence: Cadence, at_ms: int) -> int | None:
    """The newest slot that is due at ``at_ms``, or None before the first one."""
    if at_ms < cadence.starts_at_ms:
        return None
    regular = at_ms - (at_ms - _phase_of(cadence)) % cadence.interval_ms
    return regular if regular > cadence.starts_at_ms + SETTLING_MS else cadence.starts_at_ms


def _phase_of(cadence: Cadence) -> int:
    return phase_ms(cadence.monitor_id, cadence.interval_ms)


def slots_between(cadence: Cadence, after_ms: int, until_ms: int) -> Iterator[int]:
    """Every slot in ``(after_ms, until_ms]``, oldest first."""
    slot = next_slot_ms(cadence, after_ms)
    while slot <= until_ms:
        yield slot
        slot = next_slot_ms(cadence, slot)
