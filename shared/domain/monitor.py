"""A monitor as its owner describes it: what to check, how often, from where, and when it counts as down."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from shared.domain.checks import CheckSpec, Strict

MIN_INTERVAL_SECONDS = 5
MAX_INTERVAL_SECONDS = 86_400
DEFAULT_TIMEOUT_SECONDS = 10.0
_REGION = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,30}[a-z0-9])?")
Region = Annotated[str, Field(min_length=1, max_length=32)]


def region_problem(region: str) -> str | None:
    """Why a region cannot be a NATS subject token and a label, or None."""
    if _REGION.fullmatch(region):
        return None
    return "a region is 1 to 32 lower-case letters, digits, '-' or '_', and starts and ends with a letter or digit"


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
    def _fits_the_interval(self) -> Self:
        if self.timeout_seconds > self.interval_seconds:
            raise ValueError(
                f"timeout_seconds ({self.timeout_seconds:g}) must not exceed interval_seconds "
                f"({self.interval_seconds}): a check has to end before its next one is due"
            )
        return self
