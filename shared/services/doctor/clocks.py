"""Whether two machines agree about the time."""

from __future__ import annotations

from typing import Final

from shared.services.doctor.findings import Finding

# Results are placed by the clock of the process that computes the slot; a second is seen as lateness.
TOLERATED_MS: Final = 1_000


def compared(other: str, asked_ms: int, told_ms: int, answered_ms: int) -> list[Finding]:
    """Our clock before and after the question, the other's clock between the two."""
    ahead_ms = asked_ms - told_ms if asked_ms > told_ms else min(0, answered_ms - told_ms)
    if abs(ahead_ms) <= TOLERATED_MS:
        return []
    side = "ahead of" if ahead_ms > 0 else "behind"
    return [
        Finding(
            f"this machine's clock is {abs(ahead_ms) / 1000:.1f} s {side} that of {other}",
            "let a time service (chrony, systemd-timesyncd) keep the clocks of both machines",
        )
    ]
