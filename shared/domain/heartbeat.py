"""Heartbeats: a job that tells by itself that it ran. What it may say, and when it is expected to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from shared.domain.cron import MAX_EXPRESSION, check_cron, next_cron_ms, zone_of
from shared.domain.redaction import scrub
from shared.domain.spec import Strict

MAX_BODY: Final = 10_000
"""Bytes of a ping's body, and characters of what a run has logged, that are kept."""
_DAY: Final = 86_400
_LONGEST: Final = 366 * _DAY
# Whether a schedule ever comes does not depend on the day on which it is written.
_SOME_DAY_MS: Final = 1_735_689_600_000
# A clock of the job that is ahead of ours must not make a punctual ping belong to the occurrence before.
_EARLY_MS: Final = 10_000
RUN_ID: Final = r"^[A-Za-z0-9._:-]{1,64}$"
_RUN_ID: Final = re.compile(RUN_ID)


class HeartbeatCheck(Strict):
    """Nothing is fetched: the job calls its ping address at least every ``period_seconds``, or by ``cron``.

    ``grace_seconds`` is how late a ping may be, and how long a run may take that said when it started.
    """

    kind: Literal["heartbeat"] = "heartbeat"
    period_seconds: Annotated[int | None, Field(ge=10, le=_LONGEST)] = None
    cron: Annotated[str | None, Field(max_length=MAX_EXPRESSION)] = None
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    grace_seconds: Annotated[int, Field(ge=1, le=_LONGEST)] = 300

    @property
    def target(self) -> str:
        """What is waited for, in one word for people."""
        return f"heartbeat://{self.cron or f'{self.period_seconds}s'}"

    @property
    def interval_seconds(self) -> int:
        """About how often there is news, within the bounds that other kinds have."""
        return min(self.period_seconds or _DAY, _DAY)

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if (self.period_seconds is None) == (self.cron is None):
            raise ValueError("period_seconds: give either period_seconds or cron")
        zone = zone_of(self.timezone)
        if self.cron is not None:
            check_cron(self.cron, zone, _SOME_DAY_MS)
        return self

    def expected_after(self, ping_ms: int) -> int | None:
        """When the ping after one at this time is expected; None when there will be none."""
        return self.following(ping_ms if self.cron is None else ping_ms + _EARLY_MS)

    def following(self, expected_ms: int) -> int | None:
        """The expected time after an expected time."""
        if self.cron is None:
            return expected_ms + (self.period_seconds or 0) * 1000
        return next_cron_ms(self.cron, zone_of(self.timezone), expected_ms)


class Signal(StrEnum):
    """What a ping says."""

    SUCCESS = "success"
    START = "start"
    FAIL = "fail"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Ping:
    """One ping as it was received; ``body`` is bounded and redacted."""

    received_ms: int
    signal: Signal
    exit_code: int | None = None
    run_id: str | None = None
    body: str | None = None


def read_signal(word: str) -> tuple[Signal, int | None] | None:
    """Signal and exit code of the last part of a ping's address; None for one that means nothing."""
    if word in ("", *Signal):
        return Signal(word or Signal.SUCCESS), None
    if word.isascii() and word.isdecimal() and len(word) <= 3 and int(word) <= 255:
        return (Signal.FAIL if int(word) else Signal.SUCCESS), int(word)
    return None


def is_run_id(text: str) -> bool:
    """Whether this can name a run: 1 to 64 letters, digits or ``._:-``."""
    return _RUN_ID.fullmatch(text) is not None


def readable_body(body: bytes) -> str | None:
    """The beginning of a body as text without what looks secret; None for none."""
    if not body:
        return None
    return scrub(body[:MAX_BODY].decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}"))
