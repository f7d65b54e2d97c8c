"""Who is told of an incident, when, and how often: as the owner of the monitors writes it down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import time
from typing import Annotated, Literal, Self, get_args
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ConfigDict, Field, field_validator, model_validator

from shared.domain.moment import LocalTime
from shared.domain.spec import Strict

MAX_STEPS = 10
MAX_REPEAT = 10
_WEEK_SECONDS = 7 * 86_400

Severity = Literal["down", "degraded"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DEFAULT: Literal["default"] = "default"
_DAYS: tuple[Day, ...] = get_args(Day)


def zone(name: str) -> ZoneInfo:
    """An IANA time zone; raises ``ValueError`` that names the mend."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name[:60]!r} is not an IANA time zone: write for example Europe/Berlin") from None


class QuietHours(Strict):
    """Daily hours of local wall time in which a step waits.

    ``to`` not after ``from`` means the next day, so equal ones are a whole day. ``days`` are those on which the
    hours begin; all of them when left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    timezone: Annotated[str, Field(max_length=64, examples=["Europe/Berlin"])]
    starts: Annotated[LocalTime, Field(alias="from", examples=["22:00"])]
    ends: Annotated[LocalTime, Field(alias="to", examples=["07:00"])]
    days: Annotated[list[Day], Field(min_length=1, max_length=7)] = list(_DAYS)

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        zone(name)
        return name

    @field_validator("starts", "ends")
    @classmethod
    def _local(cls, moment: time) -> time:
        if moment.tzinfo is not None:
            raise ValueError("write the local time without an offset: the zone is in 'timezone'")
        return moment.replace(microsecond=0)

    @model_validator(mode="after")
    def _ends_some_time(self) -> Self:
        if self.starts == self.ends and len(set(self.days)) == len(_DAYS):
            raise ValueError("these quiet hours are the whole week: nobody would ever be told")
        return self

    @property
    def weekdays(self) -> frozenset[int]:
        """The days as Python counts them: Monday is 0."""
        return frozenset(_DAYS.index(day) for day in self.days)


class Step(Strict):
    """Tell these channels so long after the incident was opened, unless somebody has acknowledged it by then."""

    delay_seconds: Annotated[int, Field(ge=0, le=_WEEK_SECONDS)] = 0
    channels: Annotated[
        Literal["default"] | Annotated[list[UUID], Field(min_length=1, max_length=20)],
        Field(description='Ids of channels, or "default" for every channel with `default: true`.'),
    ] = DEFAULT
    quiet_hours: Annotated[
        QuietHours | None, Field(description="When due in these hours, the step waits until they end.")
    ] = None


class Match(Strict):
    """Which incidents a policy is for: all conditions must hold, and an empty one holds always."""

    tags: Annotated[
        dict[str, Annotated[str | None, Field(max_length=200)]],
        Field(max_length=20, description="Tags of the monitor; null stands for any value."),
    ] = {}
    severities: Annotated[list[Severity], Field(max_length=2, description="Empty: any.")] = []

    def fits(self, tags: Mapping[str, str], severity: str) -> bool:
        if self.severities and severity not in self.severities:
            return False
        return all(name in tags and value in {None, tags[name]} for name, value in self.tags.items())


class AlertPolicySpec(Strict):
    """The editable part of an alert policy. Of those that match, the one with the lowest ``priority`` counts."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
    priority: Annotated[int, Field(ge=0, le=10_000)] = 100
    match: Match = Match()
    steps: Annotated[list[Step], Field(min_length=1, max_length=MAX_STEPS)] = [Step()]
    repeat: Annotated[
        int, Field(ge=0, le=MAX_REPEAT, description="How often all steps begin again while nobody acknowledges.")
    ] = 0
    repeat_after_seconds: Annotated[
        int, Field(ge=60, le=_WEEK_SECONDS, description="From the last step to the next beginning.")
    ] = 900
    reminder_seconds: Annotated[
        int | None,
        Field(ge=60, le=_WEEK_SECONDS, description="Remind whoever was told, so often, until it is acknowledged."),
    ] = None

    @field_validator("steps")
    @classmethod
    def _in_order(cls, steps: list[Step]) -> list[Step]:
        delays = [step.delay_seconds for step in steps]
        if delays != sorted(delays):
            raise ValueError("delay_seconds count from the opening of the incident: write the steps in their order")
        return steps

    def channel_ids(self) -> set[UUID]:
        """The channels that are named; those meant by "default" are not."""
        return {channel for step in self.steps if step.channels != DEFAULT for channel in step.channels}


DEFAULT_POLICY = AlertPolicySpec(name="Default")
"""What counts where no stored policy matches: every channel with ``default: true``, at once."""


def select(policies: Iterable[tuple[UUID, AlertPolicySpec]], tags: Mapping[str, str], severity: str) -> UUID | None:
    """The first policy, in the given order, that is for this incident; None means the default policy."""
    return next((key for key, policy in policies if policy.match.fits(tags, severity)), None)
