"""A monitor as its owner describes it: what to check, how often, from where, and when it counts as down."""

from __future__ import annotations

from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, field_validator, model_validator

from shared.domain.checks import CheckSpec, HeartbeatCheck, Strict
from shared.domain.dependency import MAX_PARENTS
from shared.domain.incident import DEFAULT_FLAP_WINDOW_SECONDS
from shared.domain.region import region_problem

MIN_INTERVAL_SECONDS = 5
MAX_INTERVAL_SECONDS = 86_400
DEFAULT_TIMEOUT_SECONDS = 10.0
Region = Annotated[str, Field(min_length=1, max_length=32)]


class RunOptions(Strict):
    """How one slot is run: all that a worker needs beside the check itself."""

    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = DEFAULT_TIMEOUT_SECONDS
    retries: Annotated[int, Field(ge=0, le=5)] = 0
    retry_delay_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0


class MonitorSpec(RunOptions):
    """The editable part of a monitor; read back it also has state and history."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    interval_seconds: Annotated[int, Field(ge=MIN_INTERVAL_SECONDS, le=MAX_INTERVAL_SECONDS)] = 60
    regions: Annotated[list[Region], Field(min_length=1, max_length=20)] = ["default"]
    tags: Annotated[dict[str, Annotated[str, Field(max_length=200)]], Field(max_length=50)] = {}
    failure_threshold: Annotated[int, Field(ge=1, le=20)] = 1
    recovery_threshold: Annotated[int, Field(ge=1, le=20)] = 1
    region_quorum: Annotated[
        int | None,
        Field(ge=1, le=20, description="Regions that must agree; null: more than half of those that see."),
    ] = None
    flap_window_seconds: Annotated[
        int,
        Field(ge=0, le=86_400, description="A failure this soon after a recovery re-opens the incident."),
    ] = DEFAULT_FLAP_WINDOW_SECONDS
    parents: Annotated[
        list[UUID],
        Field(max_length=MAX_PARENTS, description="Monitors whose failure explains that of this one."),
    ] = []
    check: CheckSpec

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.strip() or any(ord(character) < 32 for character in name):
            raise ValueError("a name needs a visible character and no control characters")
        return name

    @field_validator("regions")
    @classmethod
    def _regions(cls, regions: list[str]) -> list[str]:
        for region in regions:
            if problem := region_problem(region):
                raise ValueError(problem)
        if len(set(regions)) != len(regions):
            raise ValueError("a region is named twice")
        return regions

    @model_validator(mode="before")
    @classmethod
    def _timeout_follows_interval(cls, data: object) -> object:
        # The default timeout must not make a short interval invalid that its user never combined with a timeout.
        if isinstance(data, dict) and "timeout_seconds" not in data:
            interval = data.get("interval_seconds")
            if isinstance(interval, int) and 0 < interval < DEFAULT_TIMEOUT_SECONDS:
                return {**data, "timeout_seconds": float(interval)}
        return data

    @model_validator(mode="after")
    def _heartbeat_has_no_slots(self) -> Self:
        """Nothing is run for a heartbeat: it has the interval of its own period, and no place to be run from."""
        if isinstance(self.check, HeartbeatCheck):
            if len(self.regions) > 1:
                raise ValueError("regions: a heartbeat comes to us and is checked from nowhere: leave them out")
            object.__setattr__(self, "interval_seconds", self.check.interval_seconds)
            object.__setattr__(self, "timeout_seconds", min(self.timeout_seconds, self.check.interval_seconds))
        return self

    @field_validator("parents")
    @classmethod
    def _parents(cls, parents: list[UUID]) -> list[UUID]:
        if len(set(parents)) != len(parents):
            raise ValueError("a parent is named twice")
        return parents

    @model_validator(mode="after")
    def _quorum_is_possible(self) -> Self:
        if self.region_quorum is not None and self.region_quorum > len(self.regions):
            raise ValueError(f"region_quorum ({self.region_quorum}) is more than there are regions")
        return self

    @model_validator(mode="after")
    def _fits_the_interval(self) -> Self:
        if self.timeout_seconds > self.interval_seconds:
            raise ValueError(
                f"timeout_seconds ({self.timeout_seconds:g}) must not exceed interval_seconds "
                f"({self.interval_seconds}): a check has to end before its next one is due"
            )
        return self
