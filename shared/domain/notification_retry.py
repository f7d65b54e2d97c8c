"""When a notification that did not go out is tried again, and when nobody needs it any more. Pure."""

from __future__ import annotations

FIRST_WAIT_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 300.0
LONGEST_ASKED_SECONDS = 900.0
"""A service that asks for more (``Retry-After``) is tried after a quarter of an hour: alerts do not keep."""

GIVE_UP_AFTER_MS = 6 * 3600 * 1000
SENDING_MS = 30_000
"""So long an attempt takes at most, with its recording. After that whoever made it is taken for dead."""


def wait_seconds(attempt: int, asked: float | None, jitter: float) -> float:
    """Seconds after attempt number ``attempt`` (from 1): 2, 4, 8 … 300, or what the service asked for.

    ``jitter`` from -1 to 1 spreads our own waits by a tenth; what was asked for is shortened by its limit only.
    """
    own = min(FIRST_WAIT_SECONDS * 2.0 ** min(attempt - 1, 20), LONGEST_WAIT_SECONDS) * (1 + 0.1 * jitter)
    return own if asked is None else max(own, min(asked, LONGEST_ASKED_SECONDS))


def is_too_late(created_ms: int, next_ms: int) -> bool:
    """Whether a further attempt at ``next_ms`` would tell nobody anything new."""
    return next_ms - created_ms > GIVE_UP_AFTER_MS
